"""What was measured on an engine: the points that a profile's rates are fitted to, as its file keeps them."""

from typing import Annotated

from pydantic import Field

from configs.frozen import Frozen

Count = Annotated[int, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0)]


class PrefillPoint(Frozen):
    """`prompts` new prompts of `tokens` each, asked for at once: until all have their first token."""

    prompts: Count
    tokens: Count
    seconds: Seconds


class DecodePoint(Frozen):
    """A step of `requests` requests, each with `context_tokens` of context on average."""

    requests: Count
    context_tokens: Count
    seconds: Seconds


class LoadPoint(Frozen):
    """The KV of `tokens` tokens came from the node's store to the device."""

    tokens: Count
    seconds: Seconds


class TransferPoint(Frozen):
    """The KV of `tokens` tokens came from another store."""

    tokens: Count
    seconds: Seconds


class MeasuredConfig(Frozen):
    """Medians over rounds."""

    rounds: int = Field(0, ge=0, description="how often each point was measured")
    prefill: tuple[PrefillPoint, ...] = ()
    decode: tuple[DecodePoint, ...] = ()
    load: tuple[LoadPoint, ...] = ()
    transfer: tuple[TransferPoint, ...] = ()
