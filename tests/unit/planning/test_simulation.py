"""The world around the simulated engines: hand-offs, host memory, reports, and what is counted."""

import random
from dataclasses import replace

import pytest

from cluster.planning.gateway import Gateway, Mind
from cluster.planning.link import Link
from cluster.planning.load_reports import LoadReports
from cluster.planning.outcome import Record, Slo
from cluster.planning.settings import ClusterSettings, NetworkSettings, aggregated, split
from cluster.planning.simulation import Simulation
from cluster.planning.trace import Trace, TraceRequest
from routing.fleet import Fleet, ReplicaLoad
from routing.ledger import Ledger
from routing.router import Decision, Rng, RouteRequest
from tests.unit.planning.engines import engine


class Fixed:
    """Always the same placement."""

    def __init__(self, decode: str, prefill: str | None = None) -> None:
        self._decision = Decision(decode, prefill, "fixed")

    def route(self, request: RouteRequest, fleet: Fleet, now: float, rng: Rng) -> Decision:
        return self._decision


def _simulate(settings: ClusterSettings, router: Fixed, *requests: TraceRequest) -> Simulation:
    gateway = Gateway(0, Mind(router, Ledger()), random.Random(1))
    simulation = Simulation(settings, [gateway], Trace(requests, 4))
    simulation.run()
    simulation.check()
    return simulation


def _request(arrival_s: float, prompt_tokens: int, output_tokens: int, first_key: int = 0) -> TraceRequest:
    keys = range(first_key, first_key + prompt_tokens // 4)
    return TraceRequest(arrival_s, prompt_tokens, output_tokens, keys)


def test_a_lone_request_takes_its_prefill_and_a_step_for_each_further_token() -> None:
    [record] = _simulate(aggregated(1, engine()), Fixed("d0"), _request(1.0, 10, 4)).records
    assert (record.first_s, record.last_s, record.computed_tokens) == (3.0, 6.0, 10)
    assert (record.ttft_s, record.itl_s) == (2.0, 1.0)


def test_only_the_last_chunk_of_a_hand_off_is_seen_after_prefill() -> None:
    # 18 tokens in chunks of 8, 8 and 2: steps end at 1.8, 3.6 and 4.8. A block of 4 tokens takes a second to pull.
    network = NetworkSettings(transfer_bytes_per_s=4.0)
    settings = split(1, 1, replace(engine(budget=8), load_bytes_per_s=16.0), network)
    [record] = _simulate(settings, Fixed("d0", "p0"), _request(0.0, 18, 2)).records
    pulled_s, loaded_s = 1.8 + 2.0 + 2.0, 4 * 4 / 16.0
    assert record.first_s == pytest.approx(pulled_s + loaded_s + 1.2)
    assert record.last_s == pytest.approx(record.first_s + 1.0)
    assert record.computed_tokens == 18 + 2


def test_decode_pulls_and_loads_only_what_its_device_lacks() -> None:
    settings = split(1, 1, engine(), NetworkSettings(transfer_bytes_per_s=4.0))
    first, again = _simulate(settings, Fixed("d0", "p0"), _request(0.0, 17, 1), _request(100.0, 17, 1)).records
    assert first.ttft_s == pytest.approx(2.7 + 4.0 + 4.0 + 1.1)
    assert again.ttft_s == pytest.approx(1.1 + 1.1)


def test_what_a_device_evicted_is_loaded_from_the_memory_of_its_node() -> None:
    settings = aggregated(1, replace(engine(blocks=6), host_blocks=100, load_bytes_per_s=8.0))
    other = _request(50.0, 21, 1, first_key=500)
    *_, again = _simulate(settings, Fixed("d0"), _request(0.0, 17, 1), other, _request(100.0, 17, 1)).records
    assert again.computed_tokens == 1
    assert again.ttft_s == pytest.approx(4 * 4 / 8.0 + 1.1)


def test_prefill_lost_is_finished_by_decode_with_what_had_arrived() -> None:
    gateway = Gateway(0, Mind(Fixed("d0", "p0"), Ledger()), random.Random(1))
    settings = split(1, 1, engine(budget=8), NetworkSettings(transfer_bytes_per_s=1e9))
    simulation = Simulation(settings, [gateway], Trace([_request(0.0, 18, 2)], 4))
    simulation.at(2.0, lambda: simulation.kill("p0"))
    [record] = simulation.run().records
    simulation.check()
    assert record.finished
    assert record.computed_tokens == 8 + 10


def test_a_report_is_the_state_of_its_moment() -> None:
    running = [0]
    reports = LoadReports(1.0, lambda: ReplicaLoad(running=running[0]))
    seen = []
    for now, change in ((0.5, 1), (1.5, 2), (1.7, 3), (3.2, 4)):
        reports.before_change(now)
        running[0] = change
        seen.append(reports.last(now).running)
    assert seen == [0, 1, 1, 3]
    assert reports.last(4.0).running == 4


def test_a_link_moves_one_thing_after_the_other() -> None:
    link = Link(10.0)
    assert [link.move(20, 0.0), link.move(10, 0.0), link.move(10, 9.0)] == [2.0, 3.0, 10.0]


@pytest.mark.parametrize(
    ("first_s", "last_s", "output_tokens", "good"),
    [(1.9, 2.9, 101, True), (2.1, 2.9, 101, False), (1.0, 5.0, 101, False), (1.0, 1.0, 1, True), (1.0, -1.0, 9, False)],
)
def test_a_good_request_keeps_both_promises(first_s: float, last_s: float, output_tokens: int, good: bool) -> None:
    record = Record(0.0, 10, output_tokens, first_s=first_s, last_s=last_s)
    assert record.keeps(Slo(ttft_s=2.0, itl_s=0.025)) is good
