"""Following a store: real connections to a real server."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from kvtransfer.aclient import AsyncStoreClient
from kvtransfer.errors import RequestRefused, StoreLost
from kvtransfer.protocol import Done, Label, Watched
from kvtransfer.server import StoreServer
from tests.unit.kvtransfer.conftest import SLOT_BYTES, Connect, MakeServer, until

KEYS = [bytes([i]) * 32 for i in range(40)]


async def commit(client: AsyncStoreClient, *keys: bytes) -> None:
    await client.reserve(keys)
    await client.commit(keys, [0] * len(keys))


class Reader:
    """What a watcher believes."""

    def __init__(self, watch: AsyncGenerator[Watched, None]) -> None:
        self.known: set[bytes] = set()
        self.answers: list[Watched] = []
        self._watch = watch

    async def until(self, wanted: set[bytes]) -> None:
        async with asyncio.timeout(5):
            while self.known != wanted or not self.answers:
                self.take(await anext(self._watch))

    def take(self, watched: Watched) -> None:
        self.answers.append(watched)
        if watched.snapshot:
            self.known.clear()
        assert not self.known & set(watched.committed)
        assert self.known >= set(watched.gone)
        self.known = (self.known | set(watched.committed)) - set(watched.gone)


async def test_a_watcher_hears_what_is_there_what_is_committed_and_what_is_evicted(
    server: StoreServer, connect: Connect
) -> None:
    writer, watcher = await connect(), await connect()
    await commit(writer, *KEYS[:2])
    async with aclosing(watcher.watch()) as watch:
        reader = Reader(watch)
        await reader.until(set(KEYS[:2]))
        await commit(writer, *KEYS[2:4])
        await reader.until(set(KEYS[:4]))
        await writer.distrust(KEYS[:1])
        await reader.until(set(KEYS[1:4]))
        await commit(writer, *KEYS[4:20])
        await reader.until(set(server.store.readable()))
        assert len(reader.known) == 16
        assert [answer.snapshot for answer in reader.answers] == [True] + [False] * (len(reader.answers) - 1)


async def test_blocks_that_are_only_written_or_were_given_up_are_not_told(
    server: StoreServer, connect: Connect
) -> None:
    writer, watcher = await connect(), await connect()
    await writer.reserve(KEYS[:3])
    async with aclosing(watcher.watch()) as watch:
        reader = Reader(watch)
        await reader.until(set())
        await writer.abandon(KEYS[:1])
        await writer.commit(KEYS[1:2], [0])
        await reader.until({KEYS[1]})


async def test_a_watch_may_begin_before_there_is_an_arena(make_server: MakeServer, connect: Connect) -> None:
    server = await make_server()
    watcher = await connect(server)
    async with aclosing(watcher.watch()) as watch:
        reader = Reader(watch)
        await reader.until(set())
        server.store.attach(SLOT_BYTES)
        await commit(watcher, KEYS[0])
        await reader.until({KEYS[0]})


async def test_many_commits_come_in_few_answers(server: StoreServer, connect: Connect) -> None:
    writer, watcher = await connect(), await connect()
    async with aclosing(watcher.watch()) as watch:
        reader = Reader(watch)
        await reader.until(set())
        reading = asyncio.create_task(reader.until(set(KEYS[:16])))
        for key in KEYS[:16]:
            await commit(writer, key)
        await reading
        assert len(reader.answers) <= 16


async def test_a_store_in_which_nothing_happens_answers_all_the_same(server: StoreServer, connect: Connect) -> None:
    watcher = await connect()
    watch = watcher.watch(wait_s=0.01)
    assert await anext(watch) == Watched(1, True, [], [], [])
    quiet = asyncio.ensure_future(anext(watch))
    await until(lambda: next(watcher._ids) > 3)  # it has asked again by itself
    quiet.cancel()
    await asyncio.gather(quiet, return_exceptions=True)


async def test_a_second_watch_begins_anew_and_fails_the_first(server: StoreServer, connect: Connect) -> None:
    watcher = await connect()
    first, second = Reader(watcher.watch()), watcher.watch()
    await first.until(set())
    waiting = asyncio.ensure_future(first.until({KEYS[0]}))
    await until(lambda: bool(watcher._wire.waiting))
    assert (await anext(second)).snapshot
    with pytest.raises(RequestRefused, match="another watch began"):
        await waiting


async def test_a_watch_ends_with_the_store_and_leaves_nothing(make_server: MakeServer, connect: Connect) -> None:
    server = await make_server()
    watcher = await connect(server)
    reader = Reader(watcher.watch())
    await reader.until(set())
    assert len(server.store._followers) == 1
    waiting = asyncio.ensure_future(reader.until({KEYS[0]}))
    await until(lambda: bool(watcher._wire.waiting))
    await server.close()
    with pytest.raises(StoreLost):
        await waiting
    assert server.store._followers == []


async def test_a_wait_without_bound_is_refused(server: StoreServer, connect: Connect) -> None:
    watcher = await connect()
    with pytest.raises(RequestRefused, match="wait_s is"):
        await anext(watcher.watch(wait_s=1e9))


async def test_a_name_stays_with_its_block_and_is_told_to_who_comes_later(
    server: StoreServer, connect: Connect
) -> None:
    writer, watcher = await connect(), await connect()
    await writer.reserve(KEYS[:3])
    await writer.commit(KEYS[:2], [0, 0])
    assert await writer.label({KEYS[0]: 2**64 - 1, KEYS[2]: 5, KEYS[3]: 6}) == 1
    assert await writer.label({KEYS[0]: 7}) == 0
    async with aclosing(watcher.watch()) as watch:
        first = await anext(watch)
        assert dict(zip(first.committed, first.labels, strict=True)) == {KEYS[0]: 2**64 - 1, KEYS[1]: None}
        await writer.distrust(KEYS[:1])
        await commit(writer, KEYS[0])
        assert server.store.label_of(KEYS[0]) is None


async def test_names_without_blocks_are_refused(connect: Connect) -> None:
    client = await connect()
    with pytest.raises(RequestRefused, match="1 keys with 0 labels"):
        await client._ask(Label(99, [KEYS[0]], []), Done)


async def test_a_block_that_went_and_came_back_is_told_again_without_its_name(
    server: StoreServer, connect: Connect
) -> None:
    writer, watcher = await connect(), await connect()
    await commit(writer, KEYS[0])
    async with aclosing(watcher.watch()) as watch:
        assert (await anext(watch)).committed == KEYS[:1]
        await writer.label({KEYS[0]: 1})
        owner = server.store.open_owner()
        server.store.distrust(KEYS[:1])
        server.store.reserve(owner, KEYS[:1])
        server.store.commit(owner, KEYS[:1], [0])
        again = await anext(watch)
        assert (again.committed, again.labels, again.gone) == (KEYS[:1], [None], [])
