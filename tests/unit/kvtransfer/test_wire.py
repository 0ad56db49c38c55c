"""The local protocol is plain MessagePack: this client knows `socket` and the reference `msgpack` package, no more."""

import hashlib
import hmac
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest

from tests.unit.kvtransfer.conftest import FINGERPRINT, SECRET, SLOT_BYTES, ThreadedServer


class PlainClient:
    def __init__(self, socket_name: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(5)
        self.sock.connect("\0" + socket_name)

    def send(self, **message: Any) -> None:
        body = msgpack.packb(message)
        self.sock.sendall(struct.pack("<I", len(body)) + body)

    def receive(self) -> Any:
        (length,) = struct.unpack("<I", self.sock.recv(4, socket.MSG_WAITALL))
        return msgpack.unpackb(self.sock.recv(length, socket.MSG_WAITALL))

    def ask(self, **message: Any) -> Any:
        self.send(**message)
        return self.receive()


@pytest.fixture
def client(threaded_server: ThreadedServer) -> Iterator[PlainClient]:
    client = PlainClient(threaded_server.settings.socket_name)
    yield client
    client.sock.close()


def test_a_client_without_our_code_moves_a_block(client: PlainClient) -> None:
    challenge = client.receive()
    assert challenge == {"type": "challenge", "protocol": 6, "nonce": challenge["nonce"]}
    proof = hmac.new(SECRET, challenge["nonce"], hashlib.sha256).digest()
    welcome = client.ask(type="greet", protocol=6, fingerprint=FINGERPRINT, name="plain", proof=proof)
    assert welcome == {"type": "welcome", "epoch": welcome["epoch"], "address": "loopback://1"}

    client.send(type="attach", id=1, slot_bytes=SLOT_BYTES)
    message, fds, _, _ = socket.recv_fds(client.sock, 4096, 1)
    assert msgpack.unpackb(message[4:]) == {"type": "attached", "id": 1, "slots": 16, "slot_bytes": SLOT_BYTES}
    key = b"k" * 32
    reserved = client.ask(type="reserve", id=2, keys=[key])
    assert reserved == {"type": "reserved", "id": 2, "slots": [0], "full": 0}
    os.pwrite(fds[0], b"x" * SLOT_BYTES, 0)
    os.close(fds[0])
    assert client.ask(type="announce", id=3, handoff_id="h", keys=[key]) == {"type": "done", "id": 3, "count": 1}
    assert client.ask(type="commit", id=4, keys=[key], checksums=[2**64 - 1])["count"] == 1
    ended = client.ask(type="await_handoff", id=5, handoff_id="h", source=None, deadline_s=1)
    assert ended == {
        "type": "handoff_ended",
        "id": 5,
        "outcome": "ready",
        "announced_blocks": 1,
        "present_blocks": 1,
        "pulled_blocks": 0,
        "pulled_bytes": 0,
        "waited_s": ended["waited_s"],
        "reason": "",
    }
    assert client.ask(type="pin", id=6, keys=[key]) == {"type": "pinned", "id": 6, "blocks": [[0, 2**64 - 1]]}
    assert client.ask(type="unpin", id=7, keys=[key]) == {"type": "done", "id": 7, "count": 1}
    assert client.ask(type="release", id=8, handoff_id="h") == {"type": "done", "id": 8, "count": 1}
    statistics = client.ask(type="statistics", id=9)
    assert (statistics["committed_slots"], statistics["pins"], statistics["connections"]) == (1, 0, 1)
