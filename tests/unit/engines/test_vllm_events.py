"""vLLM's event batches as changes of the device's cache."""

from typing import Any

import msgspec
import pytest

from cluster.engines.engine import BlocksChanged
from cluster.engines.vllm_events import decode_batch


def batch(*events: dict[str, Any]) -> bytes:
    return msgspec.msgpack.encode([1.5, events, 0])


def stored(**fields: Any) -> dict[str, Any]:
    event = {"type": "BlockStored", "block_hashes": [b"x"], "parent_block_hash": None, "token_ids": [1, 2]}
    return {**event, "block_size": 2, "lora_id": None, "medium": "GPU", "lora_name": None, **fields}


def test_stored_removed_and_cleared_come_in_order() -> None:
    removed = {"type": "BlockRemoved", "block_hashes": [b"x"], "medium": "GPU"}
    changes = list(decode_batch(batch(stored(), removed, {"type": "AllBlocksCleared"})))
    assert changes == [
        BlocksChanged("stored", [b"x"], None, [1, 2]),
        BlocksChanged("removed", [b"x"]),
        BlocksChanged("cleared"),
    ]


def test_what_is_not_on_the_device_is_left_out() -> None:
    assert list(decode_batch(batch(stored(medium="CPU")))) == []


@pytest.mark.parametrize(
    ("extra_keys", "lora_name", "salt"),
    [
        (None, None, None),
        ([None], None, None),
        ([["pepper"]], None, "pepper"),
        ([["adapter"]], "adapter", None),
        ([["adapter", "pepper"]], "adapter", "pepper"),
        ([["pepper", "pepper"]], "pepper", "pepper"),
    ],
)
def test_the_salt_is_told_apart_from_the_adapter(extra_keys: Any, lora_name: str | None, salt: str | None) -> None:
    (change,) = decode_batch(batch(stored(extra_keys=extra_keys, lora_name=lora_name)))
    assert (change.cache_salt, change.lora_name) == (salt, lora_name)
    assert (change.hashes, change.inexpressible) == ([b"x"], 0)


@pytest.mark.parametrize(
    ("extra_keys", "lora_name", "parent", "plain"),
    [
        ([None, [["image", 3]], None], None, None, 1),
        ([["adapter", ["image", 3], "pepper"], ["adapter"], ["adapter"]], "adapter", None, 0),
        ([["pepper"], [b"digest of an embedding"], None], None, None, 1),
        ([[b"digest of an embedding"], None, None], None, None, 0),
        ([["adapter"], ["adapter"], ["adapter", ["image", 0]]], "adapter", b"w", 2),
        ([["pepper"], None, None], None, b"w", 0),
    ],
)
def test_a_chain_ends_before_what_is_more_than_tokens(
    extra_keys: Any, lora_name: str | None, parent: bytes | None, plain: int
) -> None:
    event = stored(
        block_hashes=[b"x", b"y", b"z"],
        token_ids=[1, 2, 3, 4, 5, 6],
        extra_keys=extra_keys,
        lora_name=lora_name,
        parent_block_hash=parent,
    )
    (change,) = decode_batch(batch(event))
    assert (change.hashes, change.inexpressible) == ([b"x", b"y", b"z"][:plain], 3 - plain)
    assert change.token_ids == [1, 2, 3, 4, 5, 6][: 2 * plain]
