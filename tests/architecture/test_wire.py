"""The wire is plain MessagePack: another implementation reads what we send and is understood."""

import msgpack
import pytest

from cluster.dataplane.frames import Abort, Delta, Deltas, encode, from_gateway, from_worker
from kvtransfer.errors import FrameInvalid


def test_another_implementation_reads_a_frame() -> None:
    frame = encode(Abort(stream=7))
    assert int.from_bytes(frame[:4], "little") == len(frame) - 4
    assert msgpack.unpackb(frame[4:]) == {"type": "abort", "stream": 7}


def test_another_implementation_is_understood() -> None:
    body = msgpack.packb({"type": "abort", "stream": 7})
    assert from_gateway.decode(body) == Abort(stream=7)


def test_a_delta_survives_the_way_through_another_implementation() -> None:
    frame = Deltas(items=[(1, Delta(index=0, token_ids=[5, 6], text="é"))])
    assert from_worker.decode(msgpack.packb(msgpack.unpackb(encode(frame)[4:]))) == frame


@pytest.mark.parametrize(
    "body", [{"type": "abort"}, {"type": "abort", "stream": "7"}, {"type": "explode", "stream": 7}]
)
def test_a_missing_field_a_wrong_type_and_an_unknown_message_are_refused(body: dict[str, object]) -> None:
    with pytest.raises(FrameInvalid):
        from_gateway.decode(msgpack.packb(body))
