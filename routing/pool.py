"""Replicas as columns: what of them does not change with every placement.

A prompt's `n` tokens after `c` take `token_s · n + attention_s · n · (c + n / 2)` seconds and, for each chunk, a step
of `chunk_s`. A decode step takes `step_s`, and more for each running request and each token of context. Loading from
the node's store takes `host_latency_s`, then `host_token_s` for each token. All are corrected by what was observed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from routing.books import Books, Column, Floats, Rows, number
from routing.fleet import Replica, ReplicaLoad
from routing.rates import Metric, Rates


@dataclass(slots=True)
class Pool:
    """Entry `i` of every column is about replica `ids[i]`. `fingerprints` and `nodes` are codes: equal or not.
    `on_node` has the places by node.

    `others_requests` and `others_prefill_s` are other gateways' work, at first as reported; `others_blocks` are device
    blocks held that this gateway did not reserve. `rows` is where the ledger's books tell of them, `seen_requests` and
    `seen_prefill_s` what this gateway had given them when they reported.
    """

    ids: Sequence[str]
    node_ids: Sequence[str]
    place: Mapping[str, int]
    block_sizes: Sequence[int]
    chunk_tokens: int
    max_running: int
    on_node: Mapping[int, Sequence[int]]
    fingerprints: NDArray[np.intp]
    nodes: NDArray[np.intp]
    max_model_len: NDArray[np.intp]
    block_size: Floats
    kv_blocks: Floats
    token_s: Floats
    attention_s: Floats
    chunk_s: Floats
    step_s: Floats
    step_request_s: Floats
    step_context_s: Floats
    host_latency_s: Floats
    host_token_s: Floats
    reported_requests: Floats
    reported_prefill_s: Floats
    seen_requests: Floats
    seen_prefill_s: Floats
    others_requests: Floats
    others_prefill_s: Floats
    others_blocks: Floats
    rows: Rows

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, which: slice) -> "Pool":
        """Some of the replicas. Columns are shared: what changes here changes there."""
        ids, node_ids = self.ids[which], self.node_ids[which]
        columns = {name: getattr(self, name)[which] for name in _COLUMNS}
        place = {replica_id: i for i, replica_id in enumerate(ids)}
        sizes = sorted(set(map(int, columns["block_size"])))
        on_node = _by_node(columns["nodes"])
        return Pool(ids, node_ids, place, sizes, self.chunk_tokens, self.max_running, on_node, **columns)

    def by_size(self, count: Callable[[int], int]) -> Floats:
        """`count` of each replica's block size; a single number where all have the same, which is nearly always."""
        if len(self.block_sizes) == 1:
            return number(count(self.block_sizes[0]))
        counts = np.array([count(size) for size in self.block_sizes], dtype=np.float64)
        several: Floats = counts[np.searchsorted(self.block_sizes, self.block_size)]
        return several

    def report(self, seen: Mapping[str, "Seen"]) -> None:
        """The latest reports; of other gateways nothing else is assumed yet."""
        reports = np.array([_numbers(seen[replica_id]) for replica_id in self.ids], dtype=np.float64).reshape(-1, 5)
        self.reported_requests[:] = reports[:, 0]
        self.reported_prefill_s[:] = reports[:, 1] * (self.token_s + self.chunk_s / self.chunk_tokens)
        self.others_blocks[:], self.seen_requests[:], self.seen_prefill_s[:] = reports[:, 2:].T
        self.others_requests[:], self.others_prefill_s[:] = self.reported_requests, self.reported_prefill_s

    def expect(self, books: Books, share: float) -> None:
        """Since they reported, others gave these replicas `share` times what this gateway gave them."""
        given = books.columns[Column.GIVEN_REQUESTS : Column.GIVEN_PREFILL_S + 1, self.rows]
        requests = np.maximum(given[0] - self.seen_requests, 0.0)  # a row that is new begins at nothing
        prefill_s = np.maximum(given[1] - self.seen_prefill_s, 0.0)
        self.others_requests[:] = self.reported_requests + share * requests
        self.others_prefill_s[:] = self.reported_prefill_s + share * prefill_s


_COLUMNS = [name for name, kind in Pool.__annotations__.items() if kind in (Floats, Rows)]


@dataclass(frozen=True, slots=True)
class Seen:
    """A replica's latest report, and what the ledger said when it came: that much of this gateway's work is in it."""

    load: ReplicaLoad
    others_blocks: float
    given_requests: float
    given_prefill_s: float


def pool_of(replicas: Sequence[Replica], seen: Mapping[str, Seen], rates: Rates, books: Books) -> Pool:
    """The columns of these replicas."""
    profile = rates.profile
    ids = [replica.replica_id for replica in replicas]
    node_ids = [replica.node_id for replica in replicas]
    nodes, sizes = _codes(node_ids), [replica.block_size_tokens for replica in replicas]
    prefill, load, step = (
        np.array([rates.factor(replica.replica_id, replica.role, metric) for replica in replicas], dtype=np.float64)
        for metric in (Metric.PREFILL, Metric.LOAD, Metric.STEP)
    )
    reports = [np.zeros(len(ids)) for _ in range(7)]
    pool = Pool(
        ids=ids,
        node_ids=node_ids,
        place={replica_id: i for i, replica_id in enumerate(ids)},
        block_sizes=sorted(set(sizes)),
        chunk_tokens=profile.chunk_tokens,
        max_running=profile.max_running,
        on_node=_by_node(nodes),
        fingerprints=_codes([replica.kv_fingerprint for replica in replicas]),
        nodes=nodes,
        max_model_len=np.array([replica.max_model_len for replica in replicas], dtype=np.intp),
        block_size=np.array(sizes, dtype=np.float64),
        kv_blocks=np.array([replica.kv_blocks or np.inf for replica in replicas], dtype=np.float64),
        token_s=profile.prefill_token_s * prefill,
        attention_s=profile.prefill_attention_s * prefill,
        chunk_s=profile.prefill_step_s * prefill,
        step_s=profile.decode_step_s * step,
        step_request_s=profile.decode_request_s * step,
        step_context_s=profile.decode_context_token_s * step,
        host_latency_s=profile.host_latency_s * load,
        host_token_s=profile.kv_bytes_per_token / profile.host_bytes_per_s * load,
        reported_requests=reports[0],
        reported_prefill_s=reports[1],
        seen_requests=reports[2],
        seen_prefill_s=reports[3],
        others_requests=reports[4],
        others_prefill_s=reports[5],
        others_blocks=reports[6],
        rows=books.rows(ids),
    )
    pool.report(seen)
    return pool


def _numbers(seen: Seen) -> tuple[float, ...]:
    load = seen.load
    return (
        load.others_requests,
        load.others_prefill_tokens,
        seen.others_blocks,
        seen.given_requests,
        seen.given_prefill_s,
    )


def _codes(names: Sequence[str]) -> Rows:
    """Small numbers for names: equal for equal ones."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(name, len(known)) for name in names], dtype=np.intp)


def _by_node(nodes: Rows) -> Mapping[int, Sequence[int]]:
    """Places by the code of their node."""
    places: dict[int, list[int]] = {}
    for place, node in enumerate(nodes.tolist()):
        places.setdefault(node, []).append(place)
    return places
