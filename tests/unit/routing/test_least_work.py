"""Where `LeastWork` places requests."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from routing.errors import NoCandidate
from routing.fleet import Fleet, Replica, ReplicaLoad, Role
from routing.least_work import LeastWork, LeastWorkSettings
from routing.ledger import Ledger
from routing.router import Decision, RouteRequest

REQUEST = RouteRequest("r", prompt_tokens=100, max_tokens=50)


def replica(replica_id: str, role: Role = Role.DECODE, **changes: object) -> Replica:
    made = Replica(replica_id, role, "n1", "f", block_size_tokens=16, max_model_len=1000)
    return replace(made, **changes)


def prefill(replica_id: str, **changes: object) -> Replica:
    return replica(replica_id, Role.PREFILL, **changes)


def fleet(*replicas: Replica) -> Fleet:
    return Fleet({r.replica_id: r for r in replicas})


def route(where: Fleet, request: RouteRequest = REQUEST, ledger: Ledger | None = None, seed: int = 0) -> Decision:
    router = LeastWork(LeastWorkSettings(decode_weight=0.1), ledger or Ledger())
    return router.route(request, where, 0.0, random.Random(seed))


def placed(decision: Decision) -> tuple[str | None, str]:
    return decision.prefill, decision.decode


def test_the_least_loaded_of_each_role_is_chosen() -> None:
    busy, idle = ReplicaLoad(queued_prefill_tokens=500), ReplicaLoad(queued_prefill_tokens=10)
    where = fleet(
        prefill("p0", load=busy),
        prefill("p1", load=idle),
        replica("d0", load=ReplicaLoad(running=2, waiting=1)),
        replica("d1", load=ReplicaLoad(running=2, held=2)),
    )
    assert placed(route(where)) == ("p1", "d0")


def test_a_burst_is_spread_evenly_by_the_ledger_alone() -> None:
    where = fleet(*(prefill(f"p{i}") for i in range(4)), *(replica(f"d{i}") for i in range(4)))
    ledger, counts = Ledger(), Counter[str]()
    for seed in range(40):
        decision = route(where, ledger=ledger, seed=seed)
        ledger.reserve(decision, REQUEST)
        counts.update([decision.decode, decision.prefill])
    assert counts == dict.fromkeys([f"{role}{i}" for role in "pd" for i in range(4)], 10)


def test_what_is_reported_and_reserved_is_not_counted_twice() -> None:
    ledger = Ledger()
    ledger.reserve(Decision("d0", "p0", ""), REQUEST)
    reported = ReplicaLoad(queued_prefill_tokens=100)
    where = fleet(
        prefill("p0", load=reported),
        prefill("p1", load=ReplicaLoad(queued_prefill_tokens=150)),
        replica("d0", load=ReplicaLoad(running=1)),
        replica("d1", load=ReplicaLoad(running=2)),
    )
    assert placed(route(where, ledger=ledger)) == ("p0", "d0")


def test_equal_replicas_get_equal_shares() -> None:
    where = fleet(replica("d0"), replica("d1"), replica("d2"))
    counts = Counter(route(where, seed=seed).decode for seed in range(600))
    assert set(counts) == {"d0", "d1", "d2"}
    assert min(counts.values()) > 150


def test_excluded_and_unready_replicas_get_nothing() -> None:
    where = fleet(prefill("p0"), prefill("p1", ready=False), replica("d0"), replica("d1", ready=False), replica("d2"))
    tried = replace(REQUEST, exclude=frozenset({"p0", "d0"}))
    assert placed(route(where, tried)) == (None, "d2")


def test_a_pair_shares_its_kv_fingerprint_even_if_another_decode_replica_is_idle() -> None:
    where = fleet(
        prefill("p0", kv_fingerprint="a"),
        replica("d0", kv_fingerprint="a", load=ReplicaLoad(running=9)),
        replica("d1", kv_fingerprint="b"),
    )
    assert placed(route(where)) == ("p0", "d0")


def test_the_best_pair_is_chosen_across_fingerprints() -> None:
    where = fleet(
        prefill("p0", kv_fingerprint="a", load=ReplicaLoad(queued_prefill_tokens=1000)),
        prefill("p1", kv_fingerprint="b", load=ReplicaLoad(queued_prefill_tokens=100)),
        replica("d0", kv_fingerprint="a"),
        replica("d1", kv_fingerprint="b", load=ReplicaLoad(running=3)),
    )
    assert placed(route(where)) == ("p1", "d1")


def test_without_a_common_fingerprint_decode_computes_the_prompt() -> None:
    decision = route(fleet(prefill("p0", kv_fingerprint="a"), replica("d0", kv_fingerprint="b")))
    assert placed(decision) == (None, "d0")
    assert "fingerprint" in decision.why


@pytest.mark.parametrize(("prompt_tokens", "prefill_id"), [(1, None), (16, None), (17, "p0"), (32, "p0")])
def test_a_prompt_without_a_full_block_before_its_last_token_is_not_split(
    prompt_tokens: int, prefill_id: str | None
) -> None:
    where = fleet(prefill("p0"), replica("d0"))
    assert placed(route(where, replace(REQUEST, prompt_tokens=prompt_tokens))) == (prefill_id, "d0")


def test_a_request_that_may_not_be_split_is_not() -> None:
    decision = route(fleet(prefill("p0"), replica("d0")), replace(REQUEST, may_disaggregate=False))
    assert decision == Decision(
        "d0", None, "d0 computes the prompt itself (5 tokens of work): the request may not be split"
    )


def test_replicas_too_small_for_the_request_get_nothing() -> None:
    where = fleet(
        prefill("p0", max_model_len=100),
        prefill("p1", max_model_len=101),
        replica("d0", max_model_len=149),
        replica("d1", max_model_len=150, load=ReplicaLoad(running=9)),
    )
    assert placed(route(where)) == ("p1", "d1")


def test_prefill_replicas_never_decode() -> None:
    with pytest.raises(NoCandidate, match="no decode replica is ready"):
        route(fleet(prefill("p0")))


def test_no_candidate_says_why() -> None:
    where = fleet(replica("d0"))
    with pytest.raises(
        NoCandidate,
        match=r"every ready decode replica \(1\) has failed this request, or would answer with other tokens",
    ):
        route(where, replace(REQUEST, exclude=frozenset({"d0"})))
    with pytest.raises(NoCandidate, match=r"has room for 1100 tokens \(at most 1000\)"):
        route(where, replace(REQUEST, max_tokens=1000))


def test_why_names_both_replicas_and_their_work() -> None:
    decision = route(fleet(prefill("p0", load=ReplicaLoad(queued_prefill_tokens=20)), replica("d0")))
    assert decision.why == (
        "prefill on p0 (120 tokens of work with this request) and decode on d0 (5) are the least loaded pair"
    )
