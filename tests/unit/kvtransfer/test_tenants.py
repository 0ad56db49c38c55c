"""Tenants at a store that really listens: each keeps its share, on this node and for what comes from another."""

from kvtransfer.server import StoreServer
from kvtransfer.tenant import NO_TENANT, tenant_of
from tests.unit.kvtransfer.conftest import SLOT_BYTES, Connect, MakeServer, until

QUIET, GREEDY = tenant_of("quiet"), tenant_of("greedy")


def keys(tenant: bytes, count: int, first: int = 0) -> list[bytes]:
    return [tenant + b"%d" % number for number in range(first, first + count)]


async def write(client, tenant: bytes, wanted: list[bytes]) -> int:  # type: ignore[no-untyped-def]
    """Write blocks; how many had no room."""
    reserved = await client.reserve(wanted, tenant)
    written = [key for key, slot in zip(wanted, reserved.slots, strict=True) if slot is not None]
    await client.commit(written, [0] * len(written))
    return int(reserved.full)


async def test_a_greedy_tenant_evicts_itself(server: StoreServer, connect: Connect) -> None:
    client = await connect()
    await write(client, QUIET, keys(QUIET, 8))
    for first in range(0, 400, 4):
        assert await write(client, GREEDY, keys(GREEDY, 4, first)) == 0
    assert len(await client.pin(keys(QUIET, 8))) == 8


async def test_what_nobody_else_wants_may_be_borrowed_and_is_given_back(server: StoreServer, connect: Connect) -> None:
    client = await connect()
    await write(client, GREEDY, keys(GREEDY, 16))
    assert await write(client, QUIET, keys(QUIET, 8)) == 0
    assert await write(client, QUIET, keys(QUIET, 4, 8)) == 0, "from its own, by now"
    assert server.store._slots._shares.held(GREEDY) == 8


async def test_a_tenant_at_its_share_has_no_room_while_it_reads_all_it_has(
    server: StoreServer, connect: Connect
) -> None:
    client = await connect()
    for tenant in (QUIET, GREEDY):
        await write(client, tenant, keys(tenant, 8))
    await client.pin(keys(GREEDY, 8))
    assert await write(client, GREEDY, keys(GREEDY, 2, 8)) == 2


async def test_what_comes_from_another_node_is_the_asking_tenants(
    server: StoreServer, make_server: MakeServer, connect: Connect
) -> None:
    far = await make_server()
    far.store.attach(SLOT_BYTES)
    producer, reader = await connect(far), await connect()
    await producer.announce("h", keys(QUIET, 3))
    await write(producer, QUIET, keys(QUIET, 3))
    await producer.label(dict(zip(keys(QUIET, 3), range(3), strict=True)))
    assert (await reader.await_handoff("h", far.address, 5.0, QUIET)).outcome == "ready"
    await write(producer, GREEDY, keys(GREEDY, 2))
    await producer.label(dict(zip(keys(GREEDY, 2), range(10, 12), strict=True)))
    assert (await reader.fetch("f", [10, 11], far.address, 5.0, GREEDY)).present_blocks == 2
    shares = server.store._slots._shares
    assert (shares.held(QUIET), shares.held(GREEDY), shares.held(NO_TENANT)) == (3, 2, 0)


async def test_blocks_are_evicted_ahead_of_need(make_server: MakeServer, connect: Connect) -> None:
    server = await make_server(slots=100, high_watermark=0.9, low_watermark=0.5)
    server.store.attach(SLOT_BYTES)
    client = await connect(server)
    await write(client, NO_TENANT, keys(NO_TENANT, 90))
    assert server.store.slot_statistics().evicted_blocks == 0
    await write(client, NO_TENANT, keys(NO_TENANT, 1, 90))
    await until(lambda: server.store.slot_statistics().free == 50)
