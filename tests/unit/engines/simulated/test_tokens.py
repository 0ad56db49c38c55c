from array import array

import numpy as np

from cluster.engines.simulated.sampling import Sampling
from cluster.engines.simulated.tokens import BlockFiller, block_hash, draw, pick, reference_tokens, root_hash
from kvtransfer.checksum import block_checksum

GREEDY = Sampling(temperature=0.0)
CANDIDATES = tuple(range(10, 300))


def reference(prompt: list[int], sampling: Sampling = GREEDY, count: int = 12) -> list[int]:
    return reference_tokens(prompt, sampling, count, BlockFiller(64), CANDIDATES, 4)


def block(previous: int, tokens: list[int], block_bytes: int = 64) -> bytes:
    out = np.empty(block_bytes, np.uint8)
    BlockFiller(block_bytes).fill(out, previous, array("I", tokens).tobytes())
    return out.tobytes()


def test_the_bytes_of_a_block_follow_from_the_block_before_and_its_tokens() -> None:
    assert block(1, [1, 2, 3, 4]) == block(1, [1, 2, 3, 4])
    assert block(1, [1, 2, 3, 4]) != block(2, [1, 2, 3, 4])
    assert block(1, [1, 2, 3, 4]) != block(1, [1, 2, 4, 3])


def test_a_block_may_have_any_number_of_bytes() -> None:
    assert block(1, [1], 61) == block(1, [1], 64)[:61]


def test_one_changed_byte_changes_the_digest() -> None:
    whole = bytearray(block(1, [1, 2, 3, 4]))
    before = block_checksum(whole)
    whole[-1] ^= 1
    assert block_checksum(whole) != before


def test_every_prompt_token_changes_what_follows() -> None:
    prompt = list(range(20, 31))
    answers = {tuple(reference([*prompt[:at], 299, *prompt[at + 1 :]])) for at in range(len(prompt))}
    assert len(answers | {tuple(reference(prompt))}) == len(prompt) + 1


def test_greedy_tokens_repeat_and_seeded_ones_depend_on_the_seed() -> None:
    prompt = list(range(50, 60))
    assert reference(prompt) == reference(prompt)
    one, other = Sampling(temperature=0.7, seed=1), Sampling(temperature=0.7, seed=2)
    assert reference(prompt, one) == reference(prompt, one)
    assert reference(prompt, one) != reference(prompt, other)


def test_without_a_seed_chance_decides() -> None:
    assert draw(5, Sampling(), 0, lambda bits: 1) != draw(5, Sampling(), 0, lambda bits: 2)


def test_outputs_of_one_seeded_request_differ() -> None:
    sampling = Sampling(seed=3)
    assert draw(5, sampling, 0, lambda bits: 0) != draw(5, sampling, 1, lambda bits: 0)


def test_a_forbidden_token_gives_way_to_the_next() -> None:
    assert pick((7, 8, 9), 1, ()) == 8
    assert pick((7, 8, 9), 1, {8}) == 9
    assert pick((7, 8, 9), 2, {9, 7}) == 8


def test_hashes_chain_and_keep_salted_and_adapted_prompts_apart() -> None:
    roots = [root_hash(None, None), root_hash("tenant", None), root_hash(None, "adapter")]
    assert len({block_hash(root, b"tokens") for root in roots}) == 3
    assert len(block_hash(roots[0], b"tokens")) == 32
