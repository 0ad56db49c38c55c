"""Both halves of every placement: where the prompt is computed, and where it decodes. One pass over each pool.

A decode replica has two prices: it computes the prompt itself, or takes it over from a prefill replica.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from routing.books import Books, Column, Floats, number
from routing.costs import (
    CAPACITY,
    Cached,
    Decoding,
    Job,
    Lacking,
    backlog_s,
    decoding,
    lacking,
)
from routing.index import Prefixes
from routing.matches import Matches
from routing.pool import Pool
from routing.view import View


class Sources(NamedTuple):
    """Prefill replicas as the first half of a pair; from now until the prompt is computed `done_s`."""

    pool: Pool
    turn: Floats
    cost_s: Floats
    queue_s: Floats
    compute_s: Floats
    done_s: Floats
    lacking: Lacking


class Seats(NamedTuple):
    """Decode replicas. `alone_s` is the cost when they compute the prompt, `cost_s` that of the second half of a pair.

    `wait_s` is the rest of the step that is running. After a hand-off `load_s` fetches the whole blocks that are not on
    the device, where `device` tokens are.
    """

    pool: Pool
    turn: Floats
    cost_s: Floats
    alone_s: Floats
    queue_s: Floats
    wait_s: Floats
    compute_s: Floats
    load_s: Floats
    first_step_s: Floats
    device: Floats
    lacking: Lacking
    decoding: Decoding


class Halves:
    """For one request at one moment. `prefixes` are by block size."""

    __slots__ = ("_backlog_s", "_books", "_cached", "_job", "_lacking", "_prefixes", "_view")

    def __init__(self, job: Job, view: View, books: Books, prefixes: Callable[[int], Prefixes], now: float) -> None:
        everyone = view.everyone
        self._job = job
        self._view = view
        self._prefixes = prefixes
        self._books = books.columns.take(everyone.rows, axis=1)
        self._cached = self._look_up(everyone)
        self._lacking = lacking(everyone, job.prompt, self._cached)
        self._backlog_s = backlog_s(everyone, self._books, now)

    def sources(self) -> Sources:
        """Every prefill replica."""
        pool = self._view.prefills
        which = slice(len(pool))
        lacks, queue_s = self._lacking.part(which), self._backlog_s[which]
        compute_s = lacks.work_s + pool.chunk_s * lacks.chunks
        done_s = queue_s + compute_s + lacks.load_s
        cost_s = done_s + CAPACITY * lacks.capacity_s
        return Sources(pool, self._books[Column.TURN, which], cost_s, queue_s, compute_s, done_s, lacks)

    def seats(self, matches: Matches) -> Seats:
        """Every decode replica. Each step that computes a chunk is a decode step as well.

        Where prefill replicas could compute the prompt, a decode replica's time is wanted even while nothing decodes.
        """
        pool, prompt = self._view.decodes, self._job.prompt
        which = slice(len(self._view.prefills), None)
        books, lacks, device = self._books[:, which], self._lacking.part(which), self._cached.device[which]
        steps = decoding(pool, books, self._job, device)
        batch, step_s = steps.batch, steps.step_s * np.sign(steps.batch)  # no step runs where nothing decodes
        wait_s = 0.5 * step_s
        chunk_s = np.maximum(step_s, pool.chunk_s)
        queued_chunks = books[Column.PREFILL_TOKENS] / number(pool.chunk_tokens)
        queue_s = self._backlog_s[which] + queued_chunks * (chunk_s - pool.chunk_s)
        compute_s = lacks.work_s + chunk_s * lacks.chunks
        delayed = CAPACITY + np.maximum(matches.stalling * batch, matches.arriving)
        alone_s = queue_s + wait_s + compute_s + lacks.load_s + delayed * lacks.capacity_s + steps.cost_s

        fetched = pool.by_size(lambda size: (prompt - 1) // size * size) - device
        load_s = pool.host_latency_s * np.sign(fetched) + pool.host_token_s * fetched
        rest = pool.by_size(lambda size: (prompt - 1) % size + 1)
        rest_s = rest * (pool.token_s + pool.attention_s * number(prompt))
        first_step_s = wait_s + steps.itl_s + rest_s
        cost_s = load_s + first_step_s + rest_s * batch + steps.cost_s
        turn = books[Column.TURN]
        return Seats(
            pool, turn, cost_s, alone_s, queue_s, wait_s, compute_s, load_s, first_step_s, device, lacks, steps
        )

    def on_node(self, pool: Pool, place: int) -> int:
        """Blocks of the prompt that the node of a replica holds in its store."""
        return self._prefixes(int(pool.block_size[place])).nodes.get(pool.node_ids[place], 0)

    def _look_up(self, pool: Pool) -> Cached:
        """Mappings that are the device's own say nothing new."""
        device = _found_none(pool)
        promised = host = None
        for size in pool.block_sizes:
            prefixes = self._prefixes(size)
            _spread(prefixes.device, device, pool, size)
            if prefixes.promised is not prefixes.device:
                promised = _found_none(pool) if promised is None else promised
                _spread(prefixes.promised, promised, pool, size)
            if prefixes.host is not prefixes.device:
                host = _found_none(pool) if host is None else host
                _spread(prefixes.host, host, pool, size)
        return Cached(device, device if promised is None else np.maximum(device, promised), host)


def _found_none(pool: Pool) -> Floats:
    return np.zeros(len(pool))


def _spread(found: Mapping[str, int], tokens: Floats, pool: Pool, size: int) -> None:
    """Write down what was found of replicas in the pool with blocks of `size`."""
    places, several = pool.place, len(pool.block_sizes) > 1
    for replica_id, count in found.items():
        place = places.get(replica_id)
        if place is not None and not (several and pool.block_size[place] != size):
            tokens[place] = count * size
