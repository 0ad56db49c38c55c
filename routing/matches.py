"""Which replicas are fit for a request, and which prefill replicas can hand over to which decode replicas.

A column that says so has 0 where a replica is fit and infinity where it is not: it is added to costs.
"""

from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from routing.books import Floats
from routing.costs import ARRIVING, STALLING
from routing.pool import Pool
from routing.router import RouteRequest

Mask = NDArray[np.bool_]


class Partners(NamedTuple):
    """Fit replicas of one fingerprint: every source can hand over to every seat."""

    sources: Floats
    seats: Floats


class Matches(NamedTuple):
    """Which decode replicas are fit, and all partners.

    For decode replicas with partners time is dearer: see `costs.STALLING` and `costs.ARRIVING`.
    """

    seats: Floats
    partners: list[Partners]
    stalling: Floats
    arriving: Floats


def matches(prefills: Pool, decodes: Pool, request: RouteRequest) -> Matches:
    """For any request."""
    prompt = request.prompt_tokens
    if request.may_disaggregate:
        sources = _fit(prefills, request, prompt + 1)
    else:
        sources = np.zeros(len(prefills), dtype=np.bool_)
    return matched(prefills, decodes, sources, _fit(decodes, request, prompt + request.max_tokens), prompt)


def matched(prefills: Pool, decodes: Pool, sources: Mask, seats: Mask, prompt_tokens: float) -> Matches:
    """For a request that these are fit for. Only whole blocks, without the last token's, are handed over."""
    wanted: Mask = np.zeros(len(decodes), dtype=np.bool_)
    partners: list[Partners] = []
    for code in sorted(set(prefills.fingerprints[sources].tolist())):
        can_take = (decodes.fingerprints == code) & (decodes.block_size < prompt_tokens)
        wanted |= can_take
        if (seats & can_take).any():
            partners.append(Partners(_unfit(sources & (prefills.fingerprints == code)), _unfit(seats & can_take)))
    return Matches(_unfit(seats), partners, np.where(wanted, STALLING, 1.0), np.where(wanted, ARRIVING, 0.0))


def _fit(pool: Pool, request: RouteRequest, needed_tokens: int) -> Mask:
    """Which replicas have not failed this request yet and have room for it: see `routing.fit`."""
    fit: Mask = pool.max_model_len >= needed_tokens
    for replica_id in request.exclude:
        place = pool.place.get(replica_id)
        if place is not None:
            fit[place] = False
    return fit


def _unfit(fit: Mask) -> Floats:
    return np.where(fit, 0.0, inf)
