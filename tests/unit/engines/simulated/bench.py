"""What the tests of the simulated engine share: a tiny model folder, settings, and ways to run requests."""

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from cluster.dataplane.frames import Delta
from cluster.engines.engine import EngineRequest
from cluster.engines.simulated.engine import SimulatedEngine
from cluster.engines.simulated.sampling import Sampling
from cluster.engines.simulated.settings import SimulatedSettings
from cluster.engines.simulated.tokens import BlockFiller, reference_tokens
from cluster.engines.simulated.vocabulary import Vocabulary

SYLLABLES = ["ba", "ton", "pre", "fill", "de", "co", "ker", "nel", "run", "mo", "tis", "lu"]
TEXTS = [" ".join(first + second for first in SYLLABLES for second in SYLLABLES), "the prompt is computed once"]
MODEL_LENGTH = 512


def write_model(folder: Path) -> Path:
    """A byte-level tokenizer of a few hundred ids and the one line of configuration the engine reads."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": MODEL_LENGTH}))
    return folder


def settings(model: Path, **changes: Any) -> SimulatedSettings:
    """A fast small engine; every field may be changed."""
    defaults: dict[str, Any] = {
        "model_digest": "test",
        "device_blocks": 256,
        "kv_bytes_per_token": 16,
        "decode_step_s": 0.0,
        "decode_request_s": 0.0,
        "prefill_tokens_per_s": 1e9,
    }
    return SimulatedSettings(model_path=model, **(defaults | changes))


def has_store(engine: SimulatedEngine) -> bool:
    """Whether the engine can use its node's store now."""
    return engine._link is not None and engine._link.attachment is not None


def held_blocks(engine: SimulatedEngine) -> int:
    """Blocks of the device that requests hold or that wait to be committed to the store."""
    return engine._core.table.held


def clear_prefix_cache(engine: SimulatedEngine) -> None:
    """Let the device forget all its cached blocks, as vLLM's reset does; running requests keep theirs."""
    engine._core.forget_cached()


def request(name: str, prompt: list[int], handoff_id: str | None = None, **sampling: Any) -> EngineRequest:
    """A request; greedy unless told otherwise."""
    encoded = msgspec.msgpack.encode({"temperature": 0.0, "max_tokens": 8} | sampling)
    return EngineRequest(name, prompt, encoded, handoff_id=handoff_id)


async def run(engine: SimulatedEngine, wanted: EngineRequest) -> Delta:
    """The whole first output, as one delta."""
    return (await run_all(engine, wanted))[0]


async def run_all(engine: SimulatedEngine, wanted: EngineRequest) -> dict[int, Delta]:
    """Every output, each as one delta."""
    outputs: dict[int, Delta] = {}
    async for delta in engine.generate(wanted):
        if delta.index in outputs:
            outputs[delta.index].absorb(delta)
        else:
            outputs[delta.index] = delta
    return outputs


def reference(used: SimulatedSettings, prompt: list[int], count: int, **sampling: Any) -> list[int]:
    """The tokens that are right, computed without an engine."""
    vocabulary = _vocabulary(used.model_path)
    wanted = Sampling(**({"temperature": 0.0} | sampling))
    return reference_tokens(
        prompt, wanted, count, BlockFiller(used.block_bytes), vocabulary.candidates, used.block_size
    )


@cache
def _vocabulary(model: Path) -> Vocabulary:
    return Vocabulary.load(model)


def prompt_of(length: int, first: int = 7) -> list[int]:
    """A prompt of valid ids; different `first`, different prompt from its first block on."""
    return random.Random(first).choices(range(2, 302), k=length)
