"""A tiny random Llama with a real tokenizer, made on this machine, for tests that need an engine but no knowledge.

Two layers, two KV heads, head dimension 32 (vLLM's CPU attention needs at least that), 4,096 positions. The same
seed gives the same weights, and the tokenizer is trained on source text of the standard library, so the folder is
the same whenever and wherever it is made with the same versions. Made in a temporary folder and renamed: a folder
that exists is complete.
"""

import importlib
import inspect
import shutil
import tempfile
from pathlib import Path
from typing import Any

from cluster.models.cache import cache_folder

CORPUS = ("argparse", "asyncio.base_events", "collections", "decimal", "email.message", "inspect", "pathlib", "typing")
"""Modules whose source text the tokenizer is trained on."""

VOCABULARY = 2048
POSITIONS = 4096
END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def default_folder() -> Path:
    """Where the tests' model lies: beside the models that were fetched."""
    return cache_folder() / "tiny-llama"


def ensure_tiny_llama(folder: Path | None = None, *, seed: int = 0) -> Path:
    """The folder with the model, made first if it does not exist."""
    target = folder or default_folder()
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _save_tokenizer(making)
        _save_model(making, seed)
        _move_into_place(making, target)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return target


def _move_into_place(made: Path, target: Path) -> None:
    """Rename; when another process was faster its folder stays, being the same."""
    try:
        made.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def _save_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        show_progress=False,
        special_tokens=[END_OF_TEXT, TURN_START, TURN_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator((inspect.getsource(importlib.import_module(name)) for name in CORPUS), trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        model_max_length=POSITIONS,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(folder)


def _save_model(folder: Path, seed: int) -> None:
    import torch
    from transformers import LlamaForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(_config()).to(torch.bfloat16)
    model.generation_config.eos_token_id = model.config.eos_token_id
    model.save_pretrained(folder)


def _config() -> Any:
    """Large initial weights give sharp distributions: a greedy choice then survives rounding."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=POSITIONS,
        initializer_range=0.2,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=2,
        pad_token_id=0,
        dtype="bfloat16",
    )
