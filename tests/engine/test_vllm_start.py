"""What is refused before an engine starts."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.engines.vllm_engine import VllmEngine
from cluster.errors import EngineFailed
from cluster.models.tiny import ensure_tiny_llama
from configs.errors import ConfigError
from tests.contracts.engine_vllm import tiny_settings

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"max_num_seq": 4}, "max_num_seq: vLLM has no such engine argument; did you mean max_num_seqs"),
        ({"kv_transfer_config": None}, "kv_transfer_config: not allowed here: it follows from the KV store"),
    ],
)
async def test_an_engine_argument_is_refused_by_name(args: dict[str, object], message: str) -> None:
    settings = tiny_settings("nowhere", b"", 0)
    with pytest.raises(ConfigError, match=message):
        await VllmEngine.create(replace(settings, args={**settings.args, **args}))


async def test_a_model_with_a_sliding_window_is_refused_with_the_reason(tmp_path: Path) -> None:
    model = tmp_path / "windowed"
    shutil.copytree(ensure_tiny_llama(), model)
    config = json.loads((model / "config.json").read_text())
    config |= {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 64}
    (model / "config.json").write_text(json.dumps(config))
    with pytest.raises(EngineFailed, match="sliding window of 64 tokens"):
        await VllmEngine.create(replace(tiny_settings("nowhere", b"", 0), model=str(model)))
