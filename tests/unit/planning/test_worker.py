"""The simulated engine: chunks, sharing, steps taken together, preemption."""

import random

import pytest

from cluster.planning.job import Phase
from tests.unit.planning.engines import job, step, worker


def test_a_prompt_longer_than_the_budget_is_computed_in_chunks() -> None:
    busy = worker(budget=16)
    long = job(1, 40, 2)
    busy.add(long)
    counts = []
    for _ in range(3):
        _, end = step(busy, 0.0)
        counts += [chunk.count for chunk in end.chunks]
    assert counts == [16, 16, 8]
    assert long.phase is Phase.DECODE
    assert long.emitted == 1


def test_decoding_requests_come_first_in_the_budget() -> None:
    busy = worker(budget=16)
    busy.add(job(1, 8, 10))
    step(busy, 0.0)
    busy.add(job(2, 40, 1, first_key=100))
    _, end = step(busy, 2.0)
    assert [chunk.count for chunk in end.chunks] == [15]
    assert end.emitting == 1


def test_equal_prompts_share_their_blocks_from_the_first_step() -> None:
    busy = worker(budget=64)
    first, second = job(1, 18, 1), job(2, 18, 1)
    busy.add(first)
    busy.add(second)
    _, end = step(busy, 0.0)
    assert [chunk.count for chunk in end.chunks] == [18, 2]
    assert sorted(end.done, key=lambda done: done.request) == [first, second]


def test_the_last_token_is_never_taken_from_the_cache() -> None:
    busy = worker()
    busy.add(job(1, 16, 1))
    step(busy, 0.0)
    busy.add(job(2, 16, 1))
    _, end = step(busy, 2.0)
    assert [chunk.count for chunk in end.chunks] == [4]


def test_what_is_published_is_told_once_and_what_is_evicted_too() -> None:
    busy = worker(blocks=5)
    busy.add(job(1, 16, 1))
    _, end = step(busy, 0.0)
    assert (list(end.device.stored), list(end.device.removed)) == ([0, 1, 2, 3], [])
    busy.add(job(2, 12, 1, first_key=50))
    _, end = step(busy, 0.0)
    assert (list(end.device.stored), list(end.device.removed)) == ([50, 51, 52], [3, 2])


def test_steps_that_end_nothing_are_taken_together() -> None:
    busy = worker()
    busy.add(job(1, 8, 5))
    step(busy, 0.0)
    ends_at, end = step(busy, 2.0)
    assert (end.steps, end.step_s, ends_at) == (4, 1.0, 6.0)
    assert [done.request for done in end.done] == [1]
    assert busy.device.held == 0


@pytest.mark.parametrize(("comes_at", "ends_at", "steps"), [(2.5, 3.0, 1), (4.0, 4.0, 2), (4.1, 5.0, 3), (5.9, 6.0, 4)])
def test_whatever_comes_waits_for_the_step_under_way(comes_at: float, ends_at: float, steps: int) -> None:
    busy = worker()
    busy.add(job(1, 8, 5))
    step(busy, 0.0)
    busy.begin(2.0)
    busy.interrupt(comes_at)
    assert busy.step is not None
    assert (busy.step.ends_at, busy.step.steps) == (ends_at, steps)
    assert busy.end_step().steps == steps


def test_a_request_without_room_waits_for_one_that_ends() -> None:
    busy = worker(blocks=4)
    busy.add(job(1, 12, 3))
    busy.add(job(2, 12, 1, first_key=50))
    step(busy, 0.0)
    assert (busy.running, busy.waiting) == (1, 1)
    step(busy, 3.0)
    _, end = step(busy, 5.0)
    assert [done.request for done in end.done] == [2]


def test_the_latest_arrival_gives_way_when_blocks_run_out_and_is_computed_again() -> None:
    busy = worker(blocks=5)
    first, second = job(1, 8, 9), job(2, 8, 9, first_key=50)
    busy.add(first)
    busy.add(second)
    now = 0.0
    while first.phase is not Phase.ENDED or second.phase is not Phase.ENDED:
        now, _ = step(busy, now)
    assert busy.totals.preempted == 1
    assert (first.emitted, second.emitted) == (9, 9)
    assert busy.totals.computed_tokens > 16
    assert busy.device.held == 0


def test_a_job_can_be_taken_out_anywhere() -> None:
    busy = worker(budget=8)
    jobs = [job(number, 16, 4, first_key=100 * number) for number in range(3)]
    for each in jobs:
        busy.add(each)
    step(busy, 0.0)
    for each in jobs:
        busy.end(each)
        busy.end(each)
        busy.check()
    assert (busy.running, busy.waiting, busy.device.held) == (0, 0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_interruptions_change_nothing_about_when_tokens_come(seed: int) -> None:
    rng = random.Random(seed)
    jobs = [(rng.randrange(1, 60), rng.randrange(1, 40), rng.randrange(3) * 1_000) for _ in range(12)]
    assert _ends(jobs, None) == pytest.approx(_ends(jobs, rng))


def _ends(jobs: list[tuple[int, int, int]], rng: random.Random | None) -> list[float]:
    """When each request ended; with `rng` every other step is interrupted somewhere."""
    busy, now = worker(blocks=40, budget=24), 0.0
    ends = [0.0] * len(jobs)
    for number, (prompt_tokens, output_tokens, first_key) in enumerate(jobs):
        busy.add(job(number, prompt_tokens, output_tokens, first_key))
    while True:
        busy.begin(now)
        if busy.step is None:
            return ends
        if rng is not None and rng.random() < 0.5:
            busy.interrupt(now + rng.random() * (busy.step.ends_at - now))
        now = busy.step.ends_at
        for done in busy.end_step().done:
            ends[done.request] = now
        busy.check()
