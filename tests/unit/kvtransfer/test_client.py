"""The blocking client: every request, from several threads, and what happens when the store goes."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from kvtransfer.checksum import block_checksum
from kvtransfer.client import StoreClient
from kvtransfer.errors import RequestRefused, StoreLost, StoreRefused
from kvtransfer.framing import frame
from tests.unit.kvtransfer.conftest import FINGERPRINT, SECRET, SLOT_BYTES, ThreadedServer

OpenClient = Callable[[], StoreClient]
KEYS = [bytes([i]) * 32 for i in range(8)]


def test_a_block_written_by_one_process_is_read_by_another(open_client: OpenClient) -> None:
    writer, reader = open_client(), open_client()
    theirs, mine = writer.attach(SLOT_BYTES), reader.attach(SLOT_BYTES)
    slots = [slot for slot in writer.reserve(KEYS).slots if slot is not None]
    for key, slot in zip(KEYS, slots, strict=True):
        theirs.slot(slot)[:] = key * (SLOT_BYTES // 32)
    assert writer.commit(KEYS, [block_checksum(theirs.slot(slot)) for slot in slots]) == len(KEYS)
    blocks = reader.pin(KEYS)
    assert [bytes(mine.slot(block.slot)[:32]) for block in blocks] == KEYS
    assert [block_checksum(mine.slot(block.slot)) for block in blocks] == [block.checksum for block in blocks]
    assert reader.unpin(KEYS) == len(KEYS)
    theirs.close()
    mine.close()


def test_every_request_has_its_answer(open_client: OpenClient) -> None:
    client = open_client()
    client.attach(SLOT_BYTES).close()
    assert client.address == "loopback://1"
    assert client.reserve(KEYS[:3]).slots == [0, 1, 2]
    assert client.commit(KEYS[:2], [0, 0]) == 2
    assert client.abandon(KEYS[:3]) == 1
    client.announce("h", KEYS[:2])
    client.conclude("h")
    assert len(client.pin(KEYS)) == 2
    assert client.distrust(KEYS) == 2
    assert client.unpin(KEYS) == 2
    statistics = client.statistics()
    assert (statistics.epoch, statistics.distrusted_blocks) == (client.epoch, 2)


def test_a_refused_request_leaves_the_connection_usable(open_client: OpenClient) -> None:
    client = open_client()
    client.attach(SLOT_BYTES).close()
    with pytest.raises(RequestRefused, match="not 1"):
        client.attach(1)
    assert client.statistics().slots == 16


def test_threads_share_one_client(open_client: OpenClient) -> None:
    client = open_client()
    client.attach(SLOT_BYTES).close()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: client.reserve([bytes([i])]).slots, range(16)))
    assert sorted(slot for slots in answers for slot in slots if slot is not None) == list(range(16))


def test_a_store_that_ends_is_lost_and_stays_lost(open_client: OpenClient, threaded_server: ThreadedServer) -> None:
    client = open_client()
    threaded_server.stop()
    for _ in range(2):
        with pytest.raises(StoreLost):
            client.statistics()
    assert client.is_lost


def test_a_killed_process_leaves_nothing_in_the_store(open_client: OpenClient, threaded_server: ThreadedServer) -> None:
    witness = open_client()
    witness.attach(SLOT_BYTES).close()
    program = f"""if True:
        import sys, time
        from kvtransfer.client import StoreClient
        name = {threaded_server.settings.socket_name!r}
        client = StoreClient.connect(name, {FINGERPRINT!r}, "victim", {SECRET!r}, 5.0)
        arena = client.attach({SLOT_BYTES})
        client.announce("h", [b"a", b"b"])
        client.reserve([b"a", b"b"])
        client.commit([b"a"], [0])
        client.pin([b"a"])
        print("ready", flush=True)
        time.sleep(60)
    """
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "ready\n"
        held = witness.statistics()
        victim.kill()
    assert (held.writing_slots, held.pins, held.handoffs, held.connections) == (1, 2, 1, 2)
    deadline = time.monotonic() + 5
    while (left := witness.statistics()).connections > 1 and time.monotonic() < deadline:
        pass
    assert (left.writing_slots, left.pins, left.handoffs, left.committed_slots) == (0, 0, 0, 1)


def test_nobody_at_the_name_is_lost() -> None:
    with pytest.raises(StoreLost, match="refused"):
        StoreClient.connect(f"baton-test-nobody-{os.getpid()}", FINGERPRINT, "test", SECRET, 1.0)


@pytest.mark.parametrize(
    ("fingerprint", "secret", "reason"), [("other", SECRET, "KV fingerprint"), (FINGERPRINT, b"x", "cluster secret")]
)
def test_who_is_not_let_in_hears_why(
    threaded_server: ThreadedServer, fingerprint: str, secret: bytes, reason: str
) -> None:
    with pytest.raises(StoreRefused, match=reason):
        StoreClient.connect(threaded_server.settings.socket_name, fingerprint, "test", secret, 5.0)


def test_a_closed_client_is_lost(open_client: OpenClient) -> None:
    with open_client() as client:
        pass
    with pytest.raises(StoreLost):
        client.statistics()


def test_a_store_that_says_nothing_is_lost_after_the_timeout() -> None:
    name = f"\0baton-test-silent-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()
        with pytest.raises(StoreLost, match="timed out"):
            StoreClient.connect(name[1:], FINGERPRINT, "test", SECRET, 0.05)


def test_a_store_that_talks_nonsense_is_refused() -> None:
    name = f"\0baton-test-nonsense-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(name)
        listener.listen()

        def answer_once() -> None:
            with listener.accept()[0] as accepted:
                accepted.sendall(frame(b"nonsense"))
                accepted.recv(1)

        answer = threading.Thread(target=answer_once)
        answer.start()
        with pytest.raises(StoreRefused, match="bad challenge"):
            StoreClient.connect(name[1:], FINGERPRINT, "test", SECRET, 5.0)
        answer.join()
