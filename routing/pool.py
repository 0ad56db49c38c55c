"""Replicas as tables: what of them does not change with every placement, as compiled functions read it.

A prompt's `n` tokens after `c` take `token_s · n + attention_s · n · (c + n / 2)` seconds and, for each chunk, a step
of `chunk_s`. A decode step takes `step_s`, and more for each running request and each token of context. Loading from
the node's store takes `host_latency_s`, then `host_token_s` for each token. All are corrected by what was observed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import NamedTuple

import numpy as np

from routing.books import Books
from routing.fleet import Replica, Role
from routing.rates import Metric, Rates
from routing.records import Column, Table, table


class Member(NamedTuple):
    """One replica. `fingerprint`, `node` and `zone` are codes: equal or not. `kv_blocks` is infinite when it is not
    known.

    `chunk_tokens` are what a step computes of a prompt at most, `max_running` the most requests in a decode step. From
    another node's store a token comes in `remote_token_s`, after `remote_latency_s`; all of it takes `far_factor` times
    as long from another zone.
    """

    decodes: bool
    fingerprint: int
    node: int
    zone: int
    max_model_len: int
    block_size: int
    kv_blocks: float
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
    remote_latency_s: float
    remote_token_s: float
    far_factor: float


class Codes(NamedTuple):
    """What tells replicas apart: see `Member`."""

    fingerprint: int
    node: int
    zone: int


class Report(NamedTuple):
    """A replica's latest report, of what is not this gateway's work; `blocks` are held that it did not reserve.

    `given_requests` and `given_prefill_s` are what this gateway had given it until then: see `Booked`.
    """

    requests: int
    prefill_tokens: int
    blocks: float
    given_requests: int
    given_prefill_s: float


class Kind(NamedTuple):
    """What replicas have in common that can exchange blocks."""

    fingerprint: str
    block_size: int


class Kin(NamedTuple):
    """Places of such replicas, the same by store and by the code of their zone. `nodes` are the codes of the stores'
    nodes, of all that can be reached: also of those where no replica is in the pool.
    """

    places: Column
    by_store: Mapping[str, Sequence[int]]
    by_zone: Mapping[int, Column]
    nodes: Mapping[str, int]


@dataclass(slots=True)
class Pool:
    """Entry `i` of every table is about replica `ids[i]`; `rows` is where the ledger's books tell of it.

    `places` finds them by id; `nodes` are the nodes in the order of their codes, and `zones` the codes of their zones.
    `sizes` are those of their blocks, and `kinds` say where those are that can exchange blocks.
    """

    ids: Sequence[str]
    places: Mapping[str, int]
    nodes: Sequence[str]
    zones: Column
    kinds: Mapping[Kind, Kin]
    sizes: Sequence[int]
    block_sizes: Sequence[int]
    fingerprints: int
    members: Table[Member]
    reports: Table[Report]
    rows: Column

    def __len__(self) -> int:
        return len(self.ids)


def pool_of(
    replicas: Sequence[Replica],
    reports: Mapping[str, Report],
    rates: Rates,
    books: Books,
    far_factor: float,
    others: Iterable[Replica] = (),
) -> Pool:
    """The tables of these replicas. The `others` are given no work, but their stores can be read."""
    connected = [*replicas, *others]
    ids = [replica.replica_id for replica in replicas]
    places = {replica_id: place for place, replica_id in enumerate(ids)}
    nodes = list(dict.fromkeys(replica.node_id for replica in connected))
    codes = {node_id: code for code, node_id in enumerate(nodes)}
    zones = _zones(connected)
    return Pool(
        ids=ids,
        places=places,
        nodes=nodes,
        zones=zones,
        kinds=_kinds(replicas, connected, codes, zones),
        sizes=[replica.block_size_tokens for replica in replicas],
        block_sizes=sorted({replica.block_size_tokens for replica in replicas}),
        fingerprints=len({replica.kv_fingerprint for replica in replicas}),
        members=table(_members(replicas, codes, zones, rates, far_factor), Member),
        reports=reports_of(ids, reports),
        rows=books.rows(ids),
    )


def _zones(connected: Sequence[Replica]) -> Column:
    """The code of each node's zone, nodes as they come first: a node is in one zone."""
    names = {replica.node_id: replica.zone for replica in reversed(connected)}
    nodes = dict.fromkeys(replica.node_id for replica in connected)
    codes = {zone: code for code, zone in enumerate(dict.fromkeys(names[node] for node in nodes))}
    return np.array([codes[names[node]] for node in nodes], np.int64)


def _kinds(
    replicas: Sequence[Replica], connected: Sequence[Replica], codes: Mapping[str, int], zones: Column
) -> Mapping[Kind, Kin]:
    found: dict[Kind, dict[str, list[int]]] = {}
    for place, replica in enumerate(replicas):
        found.setdefault(_kind(replica), {}).setdefault(replica.store, []).append(place)
    nodes: dict[Kind, dict[str, int]] = {kind: {} for kind in found}
    for replica in connected:
        kind = _kind(replica)
        if kind in found:
            found[kind].setdefault(replica.store, [])
            nodes[kind][replica.store] = codes[replica.node_id]
    return {kind: _kin(by_store, nodes[kind], zones) for kind, by_store in found.items()}


def _kin(by_store: Mapping[str, Sequence[int]], nodes: Mapping[str, int], zones: Column) -> Kin:
    by_zone: dict[int, list[int]] = {}
    for store, places in by_store.items():
        by_zone.setdefault(int(zones[nodes[store]]), []).extend(places)
    everywhere = np.array([*chain(*by_store.values())])
    return Kin(everywhere, by_store, {zone: np.array(places, np.int64) for zone, places in by_zone.items()}, nodes)


def _kind(replica: Replica) -> Kind:
    return Kind(replica.kv_fingerprint, replica.block_size_tokens)


def reports_of(ids: Sequence[str], reports: Mapping[str, Report]) -> Table[Report]:
    """The latest reports of these replicas."""
    return table([reports[replica_id] for replica_id in ids], Report)


def _members(
    replicas: Sequence[Replica], codes: Mapping[str, int], zones: Column, rates: Rates, far_factor: float
) -> list[Member]:
    fingerprints = {name: code for code, name in enumerate(dict.fromkeys(each.kv_fingerprint for each in replicas))}
    nodes = [codes[replica.node_id] for replica in replicas]
    return [
        _member(each, rates, Codes(fingerprints[each.kv_fingerprint], node, int(zones[node])), far_factor)
        for each, node in zip(replicas, nodes, strict=True)
    ]


def _member(replica: Replica, rates: Rates, codes: Codes, far_factor: float) -> Member:
    profile = rates.profile
    prefill, load, step = (
        rates.factor(replica.replica_id, replica.role, metric) for metric in (Metric.PREFILL, Metric.LOAD, Metric.STEP)
    )
    return Member(
        decodes=replica.role is Role.DECODE,
        fingerprint=codes.fingerprint,
        node=codes.node,
        zone=codes.zone,
        max_model_len=replica.max_model_len,
        block_size=replica.block_size_tokens,
        kv_blocks=replica.kv_blocks or inf,
        chunk_tokens=profile.chunk_tokens,
        max_running=profile.max_running,
        token_s=profile.prefill_token_s * prefill,
        attention_s=profile.prefill_attention_s * prefill,
        chunk_s=profile.prefill_step_s * prefill,
        step_s=profile.decode_step_s * step,
        step_request_s=profile.decode_request_s * step,
        step_context_s=profile.decode_context_token_s * step,
        host_latency_s=profile.host_latency_s * load,
        host_token_s=profile.kv_bytes_per_token / profile.host_bytes_per_s * load,
        remote_latency_s=profile.remote_latency_s,
        remote_token_s=profile.kv_bytes_per_token / profile.remote_bytes_per_s,
        far_factor=far_factor,
    )
