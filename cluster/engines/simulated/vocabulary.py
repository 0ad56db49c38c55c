"""The model folder's tokenizer, as far as an engine without weights needs it.

Owns the choice of ids the engine may emit: those that decode on their own to plain text, so that special tokens, and
with them the end of sequence, are never emitted by chance. Deterministic from the tokenizer's file.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

_ENOUGH = 4096  # more choices make tokens no more telling and starting slower
_SCAN = 1024
_PRIMING_TOKENS = 16


class Vocabulary:
    """Ids to text. `candidates` is never empty."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.size: int = tokenizer.get_vocab_size(with_added_tokens=True)
        self.candidates = _plain_ids(tokenizer, self.size)
        self._texts: dict[int, str] = {}
        if not self.candidates:
            raise ValueError("the tokenizer has no id that decodes to plain text")

    @classmethod
    def load(cls, folder: Path) -> "Vocabulary":
        """Read `tokenizer.json` of a model folder."""
        return cls(Tokenizer.from_file(str(folder / "tokenizer.json")))

    def text(self, token_id: int) -> str:
        """The id on its own; at most one remembered text for each id of the vocabulary."""
        known = self._texts.get(token_id)
        if known is None:
            known = self._texts[token_id] = self._tokenizer.decode([token_id], skip_special_tokens=False)
        return known

    def stream(self, prompt: Sequence[int], skip_special_tokens: bool) -> "TextStream":
        """A decoder for tokens that follow a prompt, whose end decides e.g. on a space before the first word.

        A prompt that ends inside a character decides nothing: priming with it would repeat it in the output.
        """
        tail = list(prompt[-_PRIMING_TOKENS:])
        if self._tokenizer.decode(tail, skip_special_tokens=skip_special_tokens).endswith("\ufffd"):
            tail = []
        return TextStream(self._tokenizer, tail, skip_special_tokens)


class TextStream:
    """Decodes one output token by token; text of an unfinished character waits for the rest of it."""

    def __init__(self, tokenizer: Tokenizer, prompt_tail: list[int], skip_special_tokens: bool) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(ids=prompt_tail, skip_special_tokens=skip_special_tokens)

    def step(self, token_id: int) -> str:
        """The text this token completes, maybe none."""
        return self._stream.step(self._tokenizer, token_id) or ""


def context_length(folder: Path) -> int:
    """Tokens the model of a folder can hold, by its `config.json`."""
    config = json.loads((folder / "config.json").read_text())
    return int(config["max_position_embeddings"])


def _plain_ids(tokenizer: Tokenizer, size: int) -> tuple[int, ...]:
    special = set(tokenizer.get_added_tokens_decoder())
    found: list[int] = []
    for start in range(0, size, _SCAN):
        ids = [token for token in range(start, min(start + _SCAN, size)) if token not in special]
        texts = tokenizer.decode_batch([[token] for token in ids], skip_special_tokens=True)
        found += [token for token, text in zip(ids, texts, strict=True) if text and "\ufffd" not in text]
        if len(found) >= _ENOUGH:
            break
    return tuple(found[:_ENOUGH])
