"""What each replica would cost a request, one pass over the fleet for each role: the inner loop of a decision.

A decode replica has two prices: it computes the prompt itself, or takes it over from a prefill replica.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from typing import NamedTuple

from routing.account import IDLE, Account
from routing.costs import CAPACITY, Handover, Job, Lacking, Terms
from routing.index import Prefixes
from routing.standing import Kind, Standing

Lookup = Callable[[str, int], int]
Found = tuple[Lookup, Lookup, Lookup]


class Source(NamedTuple):
    """A prefill replica as the first half of a pair: `done_s` from now the prompt is computed."""

    cost_s: float
    standing: Standing
    queue_s: float
    compute_s: float
    done_s: float
    lacking: Lacking


class Seat(NamedTuple):
    """A decode replica. `alone_s` is its cost when it computes the prompt, `cost_s` its half of a pair's.

    `itl_s` is a decode step with the request, `wait_s` the rest of the running one. `device` blocks of the prompt are
    there. `violation` is by what fraction the inter-token latency or the device's blocks would exceed their bounds.
    """

    cost_s: float
    alone_s: float
    standing: Standing
    terms: Terms
    itl_s: float
    queue_s: float
    wait_s: float
    compute_s: float
    first_step_s: float
    device: int
    lacking: Lacking
    handover: Handover
    violation: float


class Board:
    """Looks at replicas for one request at one moment. `prefixes` are by block size."""

    __slots__ = ("_accounts", "_job", "_now", "_prefixes", "_terms")

    def __init__(
        self, job: Job, accounts: Mapping[str, Account], prefixes: Callable[[int], Prefixes], now: float
    ) -> None:
        self._job = job
        self._accounts = accounts
        self._prefixes = prefixes
        self._now = now
        self._terms: dict[int, tuple[Terms, Found]] = {}

    def sources(self, standings: Iterable[Standing]) -> list[Source]:
        """Prefill replicas, in the order given."""
        accounts, now, last = self._accounts, self._now, None
        sources: list[Source] = []
        for standing in standings:
            if standing.kind is not last:
                last = standing.kind
                terms, (device, promised, host) = self._of(last)
                chunk_s = last.chunk_s
            replica_id = standing.replica_id
            ready, coming = device(replica_id, 0), promised(replica_id, 0)
            lacking = terms.lacking(coming if coming > ready else ready, host(replica_id, 0))
            account = accounts.get(replica_id)
            queue_s = standing.others_prefill_s + (account.backlog_s(now) if account is not None else 0.0)
            compute_s = lacking.work_s + chunk_s * lacking.chunks
            done_s = queue_s + compute_s + lacking.load_s
            cost_s = done_s + CAPACITY * lacking.capacity_s
            sources.append(Source(cost_s, standing, queue_s, compute_s, done_s, lacking))
        return sources

    def seats(self, standings: Iterable[Standing], partners: Container[str]) -> list[Seat]:
        """Decode replicas, in the order given; `partners` are the fingerprints that prefill replicas have.

        Where prefill replicas could compute the prompt, a decode replica's time is wanted even while nothing decodes
        there. Other gateways' requests are taken to be like this one.
        """
        accounts, now, last = self._accounts, self._now, None
        _, output, outputs, itl_target_s = self._job
        context = self._job.context
        seats: list[Seat] = []
        for standing in standings:
            if standing.kind is not last:
                last = kind = standing.kind
                terms, (device, promised, host) = self._of(kind)
                base_s, each_s, token_s = kind.step_s, kind.step_request_s, kind.step_context_s
                request_s, chunk_tokens, max_running = terms.request_s, kind.chunk_tokens, kind.max_running
            replica_id = standing.replica_id
            ready, coming = device(replica_id, 0), promised(replica_id, 0)
            lacking = terms.lacking(coming if coming > ready else ready, host(replica_id, 0))
            handover = terms.handover(ready)
            account = accounts.get(replica_id, IDLE)
            others = standing.others_requests

            # Decoding: its own steps, what it adds to those of others, and the wait for a place in a full batch.
            batch = account.requests + others
            step_s = base_s + each_s * batch + token_s * (account.context_tokens + others * context)
            itl_s = step_s + request_s
            decode_s = output * (itl_s + request_s * batch)
            if batch + outputs > max_running:
                decode_s += (batch + outputs - max_running) * output * itl_s / max_running
            violation = itl_s / itl_target_s - 1.0 if itl_s > itl_target_s else 0.0
            held = standing.others_blocks + account.blocks + terms.blocks - ready
            if held > standing.kv_blocks > 0:
                violation += held / standing.kv_blocks - 1.0

            # Computing: every step with a chunk is a decode step as well.
            queue_s = standing.others_prefill_s
            if account.prefill_tokens:
                queue_s += account.backlog_s(now)
            step_in_work_s = kind.chunk_s
            if batch:
                if step_s > step_in_work_s:
                    queue_s += account.prefill_tokens / chunk_tokens * (step_s - step_in_work_s)
                    step_in_work_s = step_s
                wait_s = 0.5 * step_s
            else:
                wait_s = 0.0
            compute_s = lacking.work_s + step_in_work_s * lacking.chunks
            delayed = batch if batch >= 1 or standing.fingerprint not in partners else 1.0
            alone_s = queue_s + wait_s + compute_s + lacking.load_s + (CAPACITY + delayed) * lacking.capacity_s
            first_step_s = wait_s + itl_s + handover.work_s
            cost_s = handover.load_s + first_step_s + handover.work_s * batch + decode_s
            seats.append(
                Seat(
                    cost_s,
                    alone_s + decode_s,
                    standing,
                    terms,
                    itl_s,
                    queue_s,
                    wait_s,
                    compute_s,
                    first_step_s,
                    ready,
                    lacking,
                    handover,
                    violation,
                )
            )
        return seats

    def on_node(self, standing: Standing) -> int:
        """Blocks of the prompt, from its first on, that a replica's node holds in its store."""
        return self._prefixes(standing.kind.block_size).nodes.get(standing.node_id, 0)

    def _of(self, kind: Kind) -> tuple[Terms, Found]:
        """The terms of a kind, and where to look up a replica's blocks on its device, promised, and with its node's."""
        found = self._terms.get(id(kind))
        if found is None:
            prefixes = self._prefixes(kind.block_size)
            lookups = prefixes.device.get, prefixes.promised.get, prefixes.host.get
            found = self._terms[id(kind)] = (Terms(kind, self._job), lookups)
        return found
