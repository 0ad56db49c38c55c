"""One replica as the cost model reads it: its kind, and its last report as plain numbers, made once a report.

What changes with every placement, the ledger's accounts, is not in here. Other gateways are seen through reports only,
which come late. Between two reports of a replica the others are taken to place what this gateway places there, in
proportion to their share of all requests: they see the same fleet, so they choose the same replicas. Without that,
gateways that get bursts at the same time all send them to the same place.
"""

from dataclasses import dataclass

from routing.account import Account, Given
from routing.fleet import Replica


@dataclass(frozen=True, slots=True)
class Kind:
    """What replicas have in common that need the same time for everything: one object for all of them.

    A prompt's `n` tokens after `c` take `token_s · n + attention_s · n · (c + n / 2)` seconds and, for each chunk, a
    step of `chunk_s`. A decode step takes `step_s`, and more for each running request and each token of context.
    Loading from the node's store takes `host_latency_s`, then `host_token_s` for each token.
    """

    block_size: int
    chunk_tokens: int
    max_running: int
    token_s: float
    attention_s: float
    chunk_s: float
    step_s: float
    step_request_s: float
    step_context_s: float
    host_latency_s: float
    host_token_s: float


class Standing:
    """One replica. `others_requests` and `others_prefill_s` are other gateways' work.

    `others_blocks` are device blocks held that this gateway did not reserve, as of the last report.
    """

    __slots__ = (
        "fingerprint",
        "kind",
        "kv_blocks",
        "max_model_len",
        "node_id",
        "others_blocks",
        "others_prefill_s",
        "others_requests",
        "replica",
        "replica_id",
        "reported_prefill_s",
        "reported_requests",
        "seen_prefill_s",
        "seen_requests",
    )

    def __init__(self, replica: Replica, kind: Kind) -> None:
        self.replica = replica
        self.kind = kind
        self.replica_id = replica.replica_id
        self.node_id = replica.node_id
        self.fingerprint = replica.kv_fingerprint
        self.max_model_len = replica.max_model_len
        self.kv_blocks = replica.kv_blocks
        token_s = kind.token_s + kind.chunk_s / kind.chunk_tokens
        self.others_requests = self.reported_requests = float(replica.load.others_requests)
        self.others_prefill_s = self.reported_prefill_s = replica.load.others_prefill_tokens * token_s
        self.others_blocks = 0.0
        self.seen_requests = 0
        self.seen_prefill_s = 0.0

    def reported(self, account: Account, given: Given) -> None:
        """The report is new: what this gateway has placed so far is in it."""
        load = self.replica.load
        self.others_blocks = max(0.0, load.kv_usage * self.kv_blocks - account.blocks)
        self.seen_requests, self.seen_prefill_s = given.requests, given.prefill_s

    def still(self, known: "Standing") -> None:
        """The report is the one that `known` was made from."""
        self.others_blocks = known.others_blocks
        self.seen_requests, self.seen_prefill_s = known.seen_requests, known.seen_prefill_s

    def expect(self, given: Given, share: float) -> None:
        """Since the report, others placed `share` times what this gateway placed."""
        self.others_requests = self.reported_requests + share * (given.requests - self.seen_requests)
        self.others_prefill_s = self.reported_prefill_s + share * (given.prefill_s - self.seen_prefill_s)
