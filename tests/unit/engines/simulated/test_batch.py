from array import array

from cluster.engines.engine import EngineRequest
from cluster.engines.simulated.batch import Batch, Plan
from cluster.engines.simulated.block_table import BlockTable
from cluster.engines.simulated.sampling import Sampling
from cluster.engines.simulated.sequence import Job, Phase, Sequence
from cluster.engines.simulated.tokens import origin, root_hash

BLOCK = 4


def sequence(tokens: int, name: int = 0) -> Sequence:
    request = EngineRequest(str(name), [], b"")
    job = Job(request, Sampling(), 1000, root_hash(str(name), None), origin(None), 0.0)
    return Sequence(job, 0, BLOCK, array("I", range(tokens)), None)


def batch(blocks: int = 32, max_running: int = 4, budget: int = 16) -> Batch:
    return Batch(BlockTable(blocks), max_running, budget)


def planned(plan: Plan) -> list[tuple[Sequence, int]]:
    return [(chunk.sequence, chunk.count) for chunk in plan.chunks]


def compute(plan: Plan) -> None:
    """What the engine does, as far as the batch can see it: a sequence that is up to date gets a token."""
    for chunk in plan.chunks:
        chunk.sequence.computed += chunk.count
        if chunk.sequence.pending == 0:
            chunk.sequence.tokens.append(0)


def test_a_long_prompt_is_computed_in_chunks_of_the_budget() -> None:
    line, long = batch(), sequence(40)
    line.add(long)
    counts = []
    for _ in range(4):
        plan = line.plan(may_load=False)
        counts += [chunk.count for chunk in plan.chunks]
        compute(plan)
    assert counts == [16, 16, 8, 1]


def test_decoding_sequences_get_their_token_before_prompts_share_the_budget() -> None:
    line, early, late, last = batch(), sequence(10, 1), sequence(12, 2), sequence(12, 3)
    line.add(early)
    compute(line.plan(may_load=False))
    line.add(late)
    line.add(last)
    plan = line.plan(may_load=False)
    assert planned(plan) == [(early, 1), (late, 12), (last, 4)]
    assert (plan.decoding, plan.prompt_tokens) == (1, 16)


def test_an_equal_prompt_waits_for_the_blocks_that_are_being_computed_for_the_first() -> None:
    table = BlockTable(32)
    line, first, second = Batch(table, 4, 64), sequence(10), sequence(10)
    line.add(first)
    line.add(second)
    plan = line.plan(may_load=False)
    assert planned(plan) == [(first, 10)]
    compute(plan)
    first.filled = 2
    for index in range(first.filled):
        table.publish(first.blocks[index], first.hashes[index])
    assert planned(line.plan(may_load=False)) == [(first, 1), (second, 2)]
    assert second.blocks[:2] == first.blocks[:2]


def test_no_more_run_than_allowed() -> None:
    line = batch(max_running=2)
    for name in range(3):
        line.add(sequence(2, name))
    line.plan(may_load=False)
    assert (len(line.running), len(line.waiting)) == (2, 1)
    line.check()


def test_a_prompt_waits_until_there_are_blocks_for_all_of_it() -> None:
    line, first, second = batch(blocks=4), sequence(12, 1), sequence(8, 2)
    line.add(first)
    line.add(second)
    assert planned(line.plan(may_load=False)) == [(first, 12)]
    line.end(first)
    assert planned(line.plan(may_load=False)) == [(second, 8)]
    line.check()


def test_without_blocks_the_latest_arrival_gives_its_own_back() -> None:
    line, first, second = batch(blocks=4), sequence(8, 1), sequence(8, 2)
    line.add(first)
    line.add(second)
    compute(line.plan(may_load=False))
    plan = line.plan(may_load=False)
    assert planned(plan) == [(first, 1)]
    assert (plan.preempted, second.phase, len(second.blocks), second.computed) == (1, Phase.WAITING, 0, 0)
    assert list(line.waiting) == [second]
    line.check()


def test_a_prompt_that_lacks_blocks_is_looked_up_in_the_store_before_it_is_computed() -> None:
    line, lacking, short = batch(), sequence(10, 1), sequence(3, 2)
    line.add(lacking)
    line.add(short)
    plan = line.plan(may_load=True)
    assert (plan.loads, planned(plan)) == ([lacking], [(short, 3)])
    line.loaded(lacking, filled=2)
    assert planned(line.plan(may_load=True))[0] == (lacking, 2)


def test_a_sequence_can_end_in_every_phase() -> None:
    line = batch(max_running=2)
    loading, running, waiting = sequence(10, 1), sequence(3, 2), sequence(10, 3)
    for each in (loading, running, waiting):
        line.add(each)
    line.plan(may_load=True)
    assert [each.phase for each in (loading, running, waiting)] == [Phase.LOADING, Phase.RUNNING, Phase.WAITING]
    for each in (loading, running, waiting, waiting):
        line.end(each)
    assert list(line) == []
    line.check()
