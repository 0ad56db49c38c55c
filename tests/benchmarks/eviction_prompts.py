"""The prompts of both traces as chains of block keys.

The Azure trace says how long each prompt was and nothing of what prompts share. Its conversations are made up here: a
prompt continues the latest earlier one that it can be the next turn of, by its length and its time. That is an upper
bound on what it shares, and no measurement of anybody's traffic.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cluster.planning.trace import Trace
from cluster.planning.trace_files import MOONCAKE_BLOCK_TOKENS, read_azure, read_mooncake
from tests.benchmarks.routing import traces

AZURE_BLOCK_TOKENS = 64
SOONEST_S, LATEST_S = 5.0, 300.0
"""A next turn comes so long after the turn before it."""

MOST_NEW_TOKENS = 256
"""What a user adds in a turn at most."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """`keys` are each prompt's whole blocks; `shrunk` is the part of the trace that this is."""

    about: str
    keys: Sequence[Sequence[bytes]]
    shrunk: float = 1.0
    blocks: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", sum(map(len, self.keys)))

    def first(self, count: int) -> "Prompts":
        return Prompts(self.about, self.keys[:count], min(1.0, count / len(self.keys)))

    def scaled(self, capacity: int) -> int:
        """A capacity in proportion to the part of the trace."""
        return max(1, int(capacity * self.shrunk))

    def facts(self) -> str:
        """How much there is, and what an unlimited store would find."""
        seen: set[bytes] = set()
        found = 0
        for keys in self.keys:
            found += next((i for i, key in enumerate(keys) if key not in seen), len(keys))
            seen.update(keys)
        return (
            f"n = {len(self.keys):,} prompts, {self.blocks:,} blocks, {len(seen):,} different; "
            f"an unlimited store finds {found / self.blocks:.4f}"
        )


def mooncake() -> Prompts:
    """As recorded, in the trace's own blocks."""
    trace = read_mooncake(traces() / "mooncake_conversation.jsonl", MOONCAKE_BLOCK_TOKENS)
    keys = [[key.to_bytes(8, "little") for key in request.keys] for request in trace.requests]
    return Prompts(f"mooncake_conversation, whole blocks of {MOONCAKE_BLOCK_TOKENS} tokens", keys)


def azure(path: Path | None = None) -> Prompts:
    """Lengths and times as recorded, conversations made up."""
    trace = read_azure(path or traces() / "azure_2023_conv.csv", AZURE_BLOCK_TOKENS)
    about = (
        f"azure_2023_conv, blocks of {AZURE_BLOCK_TOKENS} tokens. The trace does not tell what prompts share: "
        f"conversations are made up\n(a prompt continues the latest one that is {SOONEST_S:g} to {LATEST_S:g} s older "
        f"and that it exceeds, answer included, by up to {MOST_NEW_TOKENS} tokens)"
    )
    return Prompts(about, made_up_conversations(trace))


@dataclass(frozen=True, slots=True)
class Turn:
    """A prompt and its answer that nobody has continued yet."""

    tokens: int
    ended_s: float
    number: int


def made_up_conversations(trace: Trace) -> list[list[bytes]]:
    """Each prompt's keys: those of the turn it continues, then its own."""
    size = trace.block_size_tokens
    waiting: list[tuple[int, int]] = []  # tokens and number of turns that may be continued, by tokens
    turns: list[Turn] = []
    chains: list[list[bytes]] = []
    for number, request in enumerate(trace.requests):
        chain: list[bytes] = []
        before = _continued(waiting, turns, request.prompt_tokens, request.arrival_s)
        if before is not None:
            waiting.remove((before.tokens, before.number))
            chain = chains[before.number][: before.tokens // size]
        whole = request.prompt_tokens // size
        chain = chain + [b"%d-%d" % (number, i) for i in range(len(chain), whole)]
        tokens = request.prompt_tokens + request.output_tokens
        chains.append(chain)
        turns.append(Turn(tokens, request.arrival_s, number))
        insort(waiting, (tokens, number))
    return chains


def _continued(waiting: list[tuple[int, int]], turns: Sequence[Turn], tokens: int, now_s: float) -> Turn | None:
    first = bisect_left(waiting, (tokens - MOST_NEW_TOKENS, 0))
    candidates = [turns[number] for _, number in waiting[first : bisect_left(waiting, (tokens, 0))]]
    fitting = [turn for turn in candidates if SOONEST_S <= now_s - turn.ended_s <= LATEST_S]
    return max(fitting, key=lambda turn: turn.number, default=None)
