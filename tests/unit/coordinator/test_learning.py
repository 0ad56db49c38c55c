"""What the router learns from a request that ended."""

from dataclasses import replace

import pytest

from cluster.coordinator.learning import Learner, observations
from cluster.coordinator.observer import Ended, Timings
from cluster.coordinator.placement import Placement
from cluster.coordinator.workers import GenerationRequest
from cluster.dataplane.frames import LegReport
from routing.fleet import Fleet, Replica, ReplicaLoad, Role
from routing.output_lengths import OutputLengths
from routing.prediction_error import PredictionError
from routing.profile import Profile
from routing.rates import Decoded, Loaded, Metric, Prefilled, Rates
from routing.router import Decision, Predicted

PROFILE = Profile(0.0, 0.001, 0.0, 1024, 0.01, 0.0, 0.0, 64, 1, 1e6, 0.0, 1e6, 0.0)
PREDICTED = Predicted(0.0, 0.2, 0.0, 0.02, 0.01, 90, 10)


def replica(replica_id: str, role: Role) -> Replica:
    return Replica(replica_id, role, "node", "kv", 16, 4096, 100, True, ReplicaLoad(running=1, kv_usage=0.5))


FLEET = Fleet({"p": replica("p", Role.PREFILL), "d": replica("d", Role.DECODE)})
GONE = Fleet({})

REQUEST = GenerationRequest("r", list(range(100)), b"", max_tokens=64, outputs=2)


def placed(prefill: str | None) -> Placement:
    return Placement(Decision("d", prefill, "", PREDICTED), ttft_s=0.25)


LOCAL = Ended(
    request=REQUEST,
    placement=placed(None),
    outcome="finished",
    prompt_tokens=100,
    generated_tokens=40,
    cached_tokens=16,
    prefill_cached_tokens=0,
    itl_s=0.02,
    attempts=1,
    timings=Timings(1.0, 0.25),
    prefill=None,
    decode=LegReport(queued_s=0.01, first_token_s=0.21),
)
HANDED_OVER = replace(
    LOCAL,
    placement=placed("p"),
    prefill_cached_tokens=32,
    prefill=LegReport(queued_s=0.01, first_token_s=0.21),
    decode=LegReport(first_token_s=0.12, loaded_blocks=6),
)

STEP = Decoded("d", Role.DECODE, 1, 800.0, 0.02)


def test_a_prompt_that_decode_computed_teaches_its_prefill_and_its_steps() -> None:
    assert list(observations(LOCAL, FLEET)) == [Prefilled("d", Role.DECODE, 84, 16, pytest.approx(0.2)), STEP]


def test_a_hand_off_teaches_prefill_loads_and_steps() -> None:
    assert list(observations(HANDED_OVER, FLEET)) == [
        Prefilled("p", Role.PREFILL, 68, 32, pytest.approx(0.2)),
        Loaded("d", Role.DECODE, 96, pytest.approx(0.1)),
        STEP,
    ]


def test_a_prompt_that_waited_shared_a_step_and_teaches_nothing_of_computing() -> None:
    ended = replace(HANDED_OVER, prefill=LegReport(queued_s=0.1, first_token_s=0.3))
    assert not [seen for seen in observations(ended, FLEET) if isinstance(seen, Prefilled)]


def test_an_engine_that_decodes_for_others_teaches_nothing_of_computing_and_loading() -> None:
    busy = Fleet({"d": replace(FLEET.replicas["d"], load=ReplicaLoad(running=3, kv_usage=0.5))})
    assert [type(seen) for seen in observations(LOCAL, busy)] == [Decoded]
    assert [type(seen) for seen in observations(HANDED_OVER, busy)] == [Decoded]


def test_a_prompt_that_prefill_loaded_in_part_teaches_nothing_of_computing() -> None:
    ended = replace(HANDED_OVER, prefill=LegReport(queued_s=0.1, first_token_s=0.3, loaded_blocks=2))
    assert [type(seen) for seen in observations(ended, FLEET)] == [Loaded, Decoded]


def test_a_hand_off_that_did_not_arrive_whole_teaches_nothing_of_loads() -> None:
    ended = replace(HANDED_OVER, decode=LegReport(first_token_s=0.3, loaded_blocks=3, recomputed_blocks=3))
    assert [type(seen) for seen in observations(ended, FLEET)] == [Prefilled, Decoded]


def test_a_short_stream_teaches_nothing_of_steps() -> None:
    assert [type(seen) for seen in observations(replace(LOCAL, generated_tokens=7), FLEET)] == [Prefilled]


def test_nothing_is_learnt_of_replicas_that_are_gone() -> None:
    """What is known of a replica is forgotten when it goes, and would never be forgotten again."""
    assert list(observations(HANDED_OVER, GONE)) == []


def learner(fleet: Fleet) -> tuple[Learner, Rates, OutputLengths, PredictionError]:
    rates, lengths, error = Rates(PROFILE), OutputLengths(), PredictionError()
    return Learner(rates, lengths, error, lambda: fleet), rates, lengths, error


def test_a_finished_request_teaches_rates_lengths_and_the_error() -> None:
    taught, rates, lengths, error = learner(FLEET)
    before = lengths.expected(64)
    taught.ended(LOCAL)
    assert rates.factor("d", Role.DECODE, Metric.STEP) == pytest.approx(2.0)
    assert lengths.expected(64) < before
    assert error.median == pytest.approx(0.12)


def test_a_request_that_failed_teaches_nothing() -> None:
    taught, rates, _, error = learner(FLEET)
    taught.ended(replace(LOCAL, outcome="replica_lost"))
    assert (rates.version, error.median) == (0, None)
