"""The tiny model is the same wherever it is made; a digest changes with what it names."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from cluster.models.identity import EDGE_BYTES, model_digest
from cluster.models.tiny import ensure_tiny_llama

pytestmark = pytest.mark.filterwarnings("ignore")


def test_it_is_made_once_and_always_the_same(tmp_path: Path) -> None:
    first = ensure_tiny_llama(tmp_path / "one")
    stamp = (first / "config.json").stat().st_mtime_ns
    assert ensure_tiny_llama(tmp_path / "one") == first
    assert (first / "config.json").stat().st_mtime_ns == stamp
    assert model_digest(str(ensure_tiny_llama(tmp_path / "two"))) == model_digest(str(first))
    assert model_digest(str(ensure_tiny_llama(tmp_path / "three", seed=1))) != model_digest(str(first))
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["one", "three", "two"]


def test_its_tokenizer_keeps_text_and_renders_a_chat(tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(ensure_tiny_llama(tmp_path / "model"))
    text = "def größe(x): return x  # 你好"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert chat == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.convert_ids_to_tokens(tokenizer(chat)["input_ids"])[0] == "<|im_start|>"


def test_a_digest_sees_config_size_and_both_ends_of_the_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    weights = tmp_path / "model.safetensors"
    seen = set()
    for change in (b"", b"end"):
        weights.write_bytes(b"a" * 3 * EDGE_BYTES + change)
        seen.add(model_digest(str(tmp_path)))
    weights.write_bytes(b"b" + b"a" * (3 * EDGE_BYTES - 1))
    seen.add(model_digest(str(tmp_path)))
    (tmp_path / "config.json").write_text('{"a": 1}')
    seen.add(model_digest(str(tmp_path)))
    assert len(seen) == 4


def test_a_hub_name_stands_for_itself() -> None:
    assert model_digest("someone/some-model") == "someone/some-model"
