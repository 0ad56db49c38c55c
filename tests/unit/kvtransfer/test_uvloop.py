"""Ray runs async actors on uvloop, which differs in what it knows of abstract names and raw sockets."""

import asyncio

import uvloop

from kvtransfer.aclient import AsyncStoreClient
from kvtransfer.protocol import HandoffEnded
from kvtransfer.server import StoreServer
from kvtransfer.transports.tcp import TcpTransport
from tests.unit.kvtransfer.conftest import FINGERPRINT, SECRET, SLOT_BYTES, fresh_settings

KEYS = [b"a" * 32, b"b" * 32]


async def move_between_two_stores() -> HandoffEnded:
    servers = [StoreServer(fresh_settings(), SECRET, FINGERPRINT, TcpTransport(SECRET, FINGERPRINT, "127.0.0.1"))]
    servers.append(StoreServer(fresh_settings(), SECRET, FINGERPRINT, TcpTransport(SECRET, FINGERPRINT, "127.0.0.1")))
    for server in servers:
        await server.start()
    producer, reader = [
        await AsyncStoreClient.connect(server.socket_name, FINGERPRINT, "test", SECRET) for server in servers
    ]
    for client in (producer, reader):
        (await client.attach(SLOT_BYTES)).close()
    await producer.announce("h", KEYS)
    wait = asyncio.create_task(reader.await_handoff("h", producer.address, 5.0))
    await producer.reserve(KEYS)
    await producer.commit(KEYS, [0, 0])
    ended = await wait
    await producer.close()
    await reader.close()
    for server in servers:
        await server.close()
    return ended


def test_two_stores_on_uvloop_move_a_hand_off() -> None:
    ended = uvloop.run(move_between_two_stores())
    assert (ended.outcome, ended.present_blocks, ended.pulled_blocks) == ("ready", 2, 2)
