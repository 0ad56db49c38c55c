"""What every client is asked to do, and what it is asked about. A check passes by returning and fails by raising."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 180.0
QUESTION = "What is the capital of France? Answer in one sentence."
CITIES = ["Paris", "Oslo", "Lima"]

FEATURES = ("chat", "streaming", "tools", "tools, streamed", "JSON schema", "logprobs", "n=3", "stop")


@dataclass(frozen=True, slots=True)
class Server:
    """Where the checks go. `base_url` has no `/v1`."""

    base_url: str
    model: str
    api_key: str = "none"


Check = Callable[[Server], None]
Checks = Mapping[str, Check]

# The only values a schema allows are short, so that even a small model's answer ends.
WEATHER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": CITIES}},
    "required": ["city"],
    "additionalProperties": False,
}
VERDICT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": CITIES}, "capital": {"type": "boolean"}},
    "required": ["city", "capital"],
    "additionalProperties": False,
}
WEATHER = "get_weather"
WEATHER_ABOUT = "The weather in a city now."


def require(true: bool, reason: str) -> None:
    """Raise with the reason unless `true`."""
    if not true:
        raise AssertionError(reason)


def require_weather(arguments: str | Mapping[str, Any]) -> None:
    """A tool call's arguments follow the schema."""
    found = json.loads(arguments) if isinstance(arguments, str) else dict(arguments)
    require(set(found) == {"city"} and found["city"] in CITIES, f"arguments do not follow the schema: {found}")


def require_verdict(text: str) -> None:
    """A structured answer follows the schema."""
    found = json.loads(text)
    shape = set(found) == {"city", "capital"} and found["city"] in CITIES and isinstance(found["capital"], bool)
    require(shape, f"the answer does not follow the schema: {found}")


def require_usage(prompt: int, completion: int, total: int) -> None:
    """Counts add up."""
    require(prompt > 0 and completion > 0 and total == prompt + completion, f"usage {prompt}+{completion}={total}")


def a_word_of(text: str) -> str:
    """A word from the middle of an answer, which the same answer can be stopped at."""
    words = text.split()
    require(len(words) >= 3, f"too short an answer to be stopped: {text!r}")
    return words[len(words) // 2]


def require_stopped(whole: str, stopped: str, word: str) -> None:
    """The stopped answer is what stood before the word."""
    require(stopped == whole[: whole.index(word)], f"stopped at {word!r}: {stopped!r}, whole answer: {whole!r}")
