"""vLLM's KV events as changes of the device's prefix cache.

The engine publishes batches on a private ZeroMQ socket, numbered from 0. A missing number means that events were
dropped: what is known is then no longer true, which is told as `cleared`; the cache is understated, never overstated.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import msgspec
from zmq.asyncio import Context
from zmq.constants import Event, SocketOption, SocketType
from zmq.utils.monitor import parse_monitor_message

from cluster.engines.engine import BlocksChanged

DEVICE = ("GPU", None)
"""vLLM's name for the device, also on CPU."""

MAX_WAITING_BATCHES = 100_000


class EventFeed:
    """Subscribed from `connect` on; one consumer."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._context = Context()
        self._socket = self._context.socket(SocketType.SUB)
        self._socket.set_hwm(MAX_WAITING_BATCHES)
        self._next_number = 0

    async def connect(self) -> None:
        """Return when the publisher has accepted the connection. The caller sets the deadline."""
        monitor = self._socket.get_monitor_socket(Event.HANDSHAKE_SUCCEEDED)
        self._socket.setsockopt(SocketOption.SUBSCRIBE, b"")
        self._socket.connect(self._endpoint)
        parse_monitor_message(await monitor.recv_multipart())
        self._socket.disable_monitor()
        monitor.close(linger=0)

    async def changes(self) -> AsyncIterator[Sequence[BlocksChanged]]:
        while True:
            _, number, payload = await self._socket.recv_multipart()
            changes = self._numbered(int.from_bytes(number, "big"), payload)
            if changes:
                yield changes

    def close(self) -> None:
        self._context.destroy(linger=0)

    def _numbered(self, number: int, payload: bytes) -> list[BlocksChanged]:
        dropped = number != self._next_number
        self._next_number = number + 1
        return [*([BlocksChanged("cleared")] if dropped else []), *decode_batch(payload)]


def decode_batch(payload: bytes) -> Iterator[BlocksChanged]:
    """The changes in one `[timestamp, events, rank]`; what is not about the device is left out."""
    _, events, *_ = msgspec.msgpack.decode(payload)
    for event in events:
        change = _change(event)
        if change is not None:
            yield change


def _change(event: dict[str, Any]) -> BlocksChanged | None:
    if event["type"] == "AllBlocksCleared":
        return BlocksChanged("cleared")
    if event.get("medium") not in DEVICE:
        return None
    if event["type"] == "BlockRemoved":
        return BlocksChanged("removed", event["block_hashes"])
    return _stored(event)


def _stored(event: dict[str, Any]) -> BlocksChanged:
    hashes = event["block_hashes"]
    plain = _plain_blocks(event)
    return BlocksChanged(
        "stored",
        hashes[:plain],
        event["parent_block_hash"],
        event["token_ids"] if plain == len(hashes) else event["token_ids"][: plain * event["block_size"]],
        _cache_salt(event),
        event.get("lora_name"),
        len(hashes) - plain,
    )


def _plain_blocks(event: dict[str, Any]) -> int:
    """How many of the first blocks depend on nothing but tokens, LoRA name and, at the prompt's start, the salt.

    An entry of the extra keys has, in order, the LoRA name, a pair for each image, the salt, a digest of embeddings.
    """
    prefix = [] if event.get("lora_name") is None else [event["lora_name"]]
    for index, keys in enumerate(event.get("extra_keys") or ()):
        others = list(keys or ())
        others = others[len(prefix) :] if others[: len(prefix)] == prefix else others
        is_salt = len(others) == 1 and isinstance(others[0], str) and index == 0 and event["parent_block_hash"] is None
        if others and not is_salt:
            return index
    return len(event["block_hashes"])


def _cache_salt(event: dict[str, Any]) -> str | None:
    """The salt is the last string among the extra keys of a chain's first block; the LoRA name may come before it."""
    extra_keys = event.get("extra_keys") or [None]
    strings = [key for key in extra_keys[0] or () if isinstance(key, str)]
    if event.get("lora_name") in strings:
        strings.remove(event["lora_name"])
    return strings[-1] if strings else None
