"""What holds of every placement, whatever the fleet."""

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from routing.errors import NoCandidate
from routing.fleet import Replica, ReplicaLoad, Role
from routing.index import Tier
from routing.kv_aware import Candidate, KvAware
from routing.router import RouteRequest
from tests.unit.routing.fleets import Desk, prompt, replica

loads = st.builds(
    ReplicaLoad,
    kv_usage=st.floats(0, 1),
    others_requests=st.integers(0, 40),
    others_prefill_tokens=st.integers(0, 9000),
)


@st.composite
def replicas(draw: st.DrawFn) -> list[Replica]:
    """Up to three of each role, on two nodes, of two fingerprints."""
    names = [f"p{i}" for i in range(draw(st.integers(0, 3)))] + [f"d{i}" for i in range(draw(st.integers(1, 3)))]
    return [
        replica(
            name,
            node_id=draw(st.sampled_from("ab")),
            kv_fingerprint=draw(st.sampled_from("fffg")),
            max_model_len=draw(st.sampled_from([1000, 20_000])),
            ready=draw(st.integers(0, 4)) > 0,
            load=draw(loads),
        )
        for name in names
    ]


@st.composite
def desks(draw: st.DrawFn) -> Desk:
    """A fleet with something cached and something running."""
    desk = Desk(draw(replicas()), seed=draw(st.integers(0, 9)))
    for each in desk.replicas:
        desk.hold(each.replica_id, draw(st.sampled_from([0, 0, 64, 640, 6400])))
        desk.hold(each.replica_id, draw(st.sampled_from([0, 0, 64, 640, 6400])), Tier.HOST)
        desk.busy(each.replica_id, draw(st.integers(0, 3)))
    desk.now = draw(st.floats(0, 2))
    return desk


prompts = st.builds(
    lambda tokens, exclude, split: prompt(tokens, exclude=frozenset(exclude), may_disaggregate=split),
    st.sampled_from([1, 16, 17, 65, 641, 900, 6450]),
    st.sets(st.sampled_from(["p0", "p1", "d0", "d1"]), max_size=2),
    st.booleans(),
)


def costs(desk: Desk, request: RouteRequest) -> dict[tuple[str | None, str], Candidate]:
    return {(each.prefill, each.decode): each for each in desk.explain(request)}


def fit(desk: Desk, replica_id: str, role: Role, needed: int, request: RouteRequest) -> bool:
    each = desk.fleet.replicas[replica_id]
    return each.role is role and each.ready and replica_id not in request.exclude and needed <= each.max_model_len


@settings(max_examples=80, deadline=None)
@given(desks(), prompts)
def test_only_fit_replicas_that_can_exchange_blocks_are_chosen(desk: Desk, request: RouteRequest) -> None:
    needed = request.prompt_tokens + request.max_tokens
    could = [r for r in desk.fleet.replicas if fit(desk, r, Role.DECODE, needed, request)]
    try:
        decision = desk.route(request)
    except NoCandidate:
        assert not could
        return
    assert decision.decode in could
    if decision.prefill is not None:
        assert request.may_disaggregate
        assert fit(desk, decision.prefill, Role.PREFILL, request.prompt_tokens + 1, request)
        prints = {desk.fleet.replicas[r].kv_fingerprint for r in (decision.prefill, decision.decode)}
        assert len(prints) == 1
    predicted, work = decision.predicted, decision.work
    assert predicted is not None
    assert work is not None
    assert 1 <= predicted.computed_tokens <= request.prompt_tokens
    assert predicted.computed_tokens + predicted.cached_tokens == request.prompt_tokens
    assert min(predicted.queue_s, predicted.compute_s, predicted.load_s, predicted.first_step_s) >= 0
    assert work.prefill_tokens == predicted.computed_tokens


@settings(max_examples=60, deadline=None)
@given(desks(), prompts)
def test_the_choice_is_the_cheapest_that_is_explained(desk: Desk, request: RouteRequest) -> None:
    found = desk.explain(request)
    assume(found)
    decision = desk.route(request)
    chosen = costs(desk, request)[decision.prefill, decision.decode]
    least = min(found, key=lambda each: each.cost_s)
    assert chosen.cost_s <= least.cost_s + 0.01 * least.predicted.ttft_s + 1e-9
    assert chosen.predicted == decision.predicted


@settings(max_examples=60, deadline=None)
@given(desks(), prompts)
def test_the_outlook_is_that_of_the_cheapest_and_room_is_waited_for_where_there_is_a_crowd(
    desk: Desk, request: RouteRequest
) -> None:
    found = desk.explain(request)
    ahead = desk.router.outlook(request, desk.fleet, desk.now)
    assert (ahead is None) == (not found)
    for predicted in (each.predicted for each in found):
        assert predicted.crowd > 0
        assert predicted.room_s >= 0
        assert predicted.room_s == 0 or predicted.crowd > 1
    if ahead is not None:
        least = min(found, key=lambda each: each.cost_s)
        assert ahead in [each.predicted for each in found if each.cost_s <= least.cost_s * 1.01 + 1e-9]


@settings(max_examples=60, deadline=None)
@given(desks(), prompts, st.integers(1, 100))
def test_more_requests_on_a_replica_leave_no_more_room_there(desk: Desk, request: RouteRequest, more: int) -> None:
    before = costs(desk, request)
    assume(before)
    decode = next(iter(before))[1]
    desk.busy(decode, more)
    after = costs(desk, request)
    for placement in before.keys() & after.keys():
        if placement[1] == decode:
            assert after[placement].predicted.crowd >= before[placement].predicted.crowd


def without_stores(desk: Desk) -> Desk:
    """The same fleet, whose stores are empty."""
    bare = Desk(desk.replicas, now=desk.now)
    bare.ledger, bare.router = desk.ledger, KvAware(desk.settings, bare.index, desk.ledger, desk.rates, desk.lengths)
    for replica_id in desk.fleet.replicas:
        held = desk.index.longest_prefix(prompt(6450).keys.at(16), desk.now).device.get(replica_id, 0)
        bare.hold(replica_id, held * 16)
    return bare


@settings(max_examples=80, deadline=None)
@given(desks(), prompts)
def test_loading_is_never_predicted_to_take_longer_than_computing(desk: Desk, request: RouteRequest) -> None:
    loading, computing = costs(desk, request), costs(without_stores(desk), request)
    for placement in loading.keys() & computing.keys():
        if placement[0] is None:
            assert loading[placement].predicted.ttft_s <= computing[placement].predicted.ttft_s + 1e-9


@settings(max_examples=80, deadline=None)
@given(desks(), prompts, st.sets(st.sampled_from(["p0", "p1", "d0", "d1", "d2"])))
def test_nothing_is_fetched_from_a_node_without_a_replica_that_is_heard_of(
    desk: Desk, request: RouteRequest, silent: set[str]
) -> None:
    for replica_id in silent & desk.fleet.replicas.keys():
        desk.index.degrade(replica_id)
    heard = [each for name, each in desk.fleet.replicas.items() if name not in silent]
    for each in desk.explain(request):
        computing = desk.fleet.replicas[each.prefill or each.decode]
        if each.fetch is None:
            continue
        assert each.fetch.node_id != computing.node_id
        assert 0 <= each.fetch.start_tokens < each.fetch.end_tokens < request.prompt_tokens
        assert each.fetch.worth_s > 0
        kin = [r for r in heard if (r.node_id, r.kv_fingerprint) == (each.fetch.node_id, computing.kv_fingerprint)]
        assert kin
        assert each.fetch.end_tokens <= max(desk.held[r.replica_id, Tier.HOST] for r in kin)


@settings(max_examples=80, deadline=None)
@given(desks(), prompts, st.data())
def test_more_work_on_a_replica_never_makes_it_cheaper(desk: Desk, request: RouteRequest, data: st.DataObject) -> None:
    before = costs(desk, request)
    busier = data.draw(st.sampled_from(sorted(desk.fleet.replicas)))
    if data.draw(st.booleans()):
        desk.busy(busier, 1)
    else:
        each = desk.fleet.replicas[busier]
        more = replace(each.load, others_requests=each.load.others_requests + 1, others_prefill_tokens=9500)
        desk.fleet = type(desk.fleet)({**desk.fleet.replicas, busier: replace(each, load=more)})
    after = costs(desk, request)
    for pair in before.keys() & after.keys():
        if busier in pair:
            assert after[pair].cost_s >= before[pair].cost_s - 1e-9


@settings(max_examples=80, deadline=None)
@given(desks(), prompts, st.data())
def test_more_cached_on_a_replica_never_makes_it_dearer(desk: Desk, request: RouteRequest, data: st.DataObject) -> None:
    before = costs(desk, request)
    richer = data.draw(st.sampled_from(sorted(desk.fleet.replicas)))
    desk.hold(richer, data.draw(st.sampled_from([16, 320, 6440])), data.draw(st.sampled_from(list(Tier))))
    after = costs(desk, request)
    for pair in before.keys() & after.keys():
        if richer in pair:
            assert after[pair].cost_s <= before[pair].cost_s + 1e-9
