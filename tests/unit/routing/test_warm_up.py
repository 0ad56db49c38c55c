"""What was compiled before the first request is all that is compiled."""

from routing import candidates, costs, index_loops
from routing.index import Tier
from routing.warm_up import warm_up
from tests.unit.routing.fleets import TOKENS, Desk, prompt, replica

ENTRIES = (index_loops.move, index_loops.runs, index_loops.fill, costs.price_all, candidates.find_options)


def test_after_the_warm_up_nothing_is_compiled_any_more() -> None:
    warm_up()
    desk = Desk([replica("p", node_id="a"), replica("d0", node_id="b"), replica("d1", kv_blocks=0)])
    keys = prompt(400).keys.at(16)
    for blocks in ([*keys, 0], list(TOKENS[:1_000]), keys[3:], iter(keys)):
        desk.index.apply("d0", Tier.DEVICE, blocks, [])
        desk.index.apply("d1", Tier.HOST, keys, list(TOKENS[:990]))
        for request in (prompt(400), prompt(5, exclude=frozenset({"d0"}), may_disaggregate=False)):
            desk.explain(request)
            _, lease = desk.place(request)
            desk.ledger.prefill_done(lease)
        desk.index.drop("p")
        desk.now += 1
    assert [len(entry.signatures) for entry in ENTRIES] == [1] * len(ENTRIES)
