"""A seeded generator of a CPU worker goes back to the start of a step."""

import torch

from cluster.engines.vllm_cpu_seeds import _LIVE, SteppedGenerator


def drawn(generator: torch.Generator) -> list[float]:
    return torch.empty(8).exponential_(generator=generator).tolist()


def test_what_a_step_drew_can_be_taken_back_and_what_was_drawn_before_stays_drawn() -> None:
    stepped, plain = SteppedGenerator(), torch.Generator()
    stepped.manual_seed(5)
    plain.manual_seed(5)
    assert drawn(stepped) == drawn(plain)
    stepped.begin_step()
    drawn(stepped)
    stepped.set_offset(stepped.get_offset() - 4)
    assert [drawn(stepped), drawn(stepped)] == [drawn(plain), drawn(plain)]


def test_a_generator_that_is_gone_is_forgotten() -> None:
    generator = SteppedGenerator(torch.device("cpu"))
    assert generator in _LIVE
    before = len(_LIVE)
    del generator
    assert len(_LIVE) == before - 1
