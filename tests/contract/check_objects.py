"""The object store contract, as functions that any backend must pass.

A check gets a `Make`: each call opens the same store anew, as another process would. Writes go through `steady`, which does
what every caller must: retry what did not happen, and look before retrying what may have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import pytest

from lakebed.errors import Ambiguous, Closed, Conflict, Exists, Invalid, NotFound, Unavailable
from lakebed.objects import ETag, FaultyStore, Key, ObjectInfo, ObjectStore, prove_preconditions

T = TypeVar("T")
Make = Callable[[], ObjectStore]
Check = Callable[[Make], Awaitable[None]]

ODD_KEYS = [
    "list/a",
    "list/a b/c",
    "list/a+b=c&d/e",
    "list/a-b",
    "list/a.b/c",
    "list/a0",
    "list/a%2Fb",
    "list/b/1",
    "list/b/10",
    "list/b/2",
    "list/date=2026/11/03/x.wo",
    "list/grün/ö",
    "list/z~",
    "list/日本/語",
]
RACERS, TRIES = 12, 200
LARGE_BYTES = 12 << 20


async def check_created_object_is_read_back(make: Make) -> None:
    store = Steady(make())
    etag = await store.create("basic/one", b"body")
    assert await store.get("basic/one") == (b"body", etag)
    info = await store.head("basic/one")
    assert (info.key, info.size, info.etag) == ("basic/one", 4, etag)
    assert info.modified_ms > 1_500_000_000_000


async def check_empty_object_is_an_object(make: Make) -> None:
    store = Steady(make())
    etag = await store.create("basic/empty", b"")
    assert await store.get("basic/empty") == (b"", etag)
    assert await store.call(lambda: store.inner.get_range("basic/empty", 0, 10)) == b""


async def check_missing_object_is_not_found(make: Make) -> None:
    store = Steady(make())
    for ask in (
        lambda: store.inner.get("basic/none"),
        lambda: store.inner.head("basic/none"),
        lambda: store.inner.get_range("basic/none", 0, 1),
        lambda: store.inner.get_range("basic/none", 1, 1),
        lambda: store.inner.get_ranges("basic/none", [(0, 1), (5, 6)]),
        lambda: store.inner.get("no/such/folder/at/all"),
    ):
        with pytest.raises(NotFound):
            await store.call(ask)
    await store.delete("basic/none")


async def check_second_create_is_refused_and_changes_nothing(make: Make) -> None:
    store = Steady(make())
    etag = await store.create("create/twice", b"first")
    with pytest.raises(Exists):
        await store.call(lambda: store.inner.create("create/twice", b"second"))
    assert await store.get("create/twice") == (b"first", etag)


async def check_put_replaces_and_changes_the_etag(make: Make) -> None:
    store = Steady(make())
    etags = [await store.put("put/one", body) for body in (b"first", b"second", b"third")]
    assert len(set(etags)) == 3
    assert await store.get("put/one") == (b"third", etags[-1])


async def check_reserved_names_are_put_replaced_and_given_up(make: Make) -> None:
    store = Steady(make())
    keys = [f"reserve/{name}" for name in "abc"]
    await store.call(lambda: store.inner.reserve(keys))
    etag = await store.put("reserve/a", b"first")
    assert await store.get("reserve/a") == (b"first", etag)
    etag = await store.put("reserve/a", b"second")
    assert await store.get("reserve/a") == (b"second", etag)
    await store.delete("reserve/b")
    with pytest.raises(NotFound):
        await store.get("reserve/b")
    etag = await store.put("reserve/b", b"after all")
    assert await store.get("reserve/b") == (b"after all", etag)


async def check_put_joins_several_buffers(make: Make) -> None:
    store = Steady(make())
    await store.call(lambda: store.inner.put("put/parts", [b"ab", bytearray(b"cd"), memoryview(b"ef")]))
    assert (await store.get("put/parts"))[0] == b"abcdef"


async def check_large_object_goes_in_parts_and_comes_back_whole(make: Make) -> None:
    store = Steady(make())
    body = b"".join(number.to_bytes(8, "big") for number in range(LARGE_BYTES // 8))
    half = len(body) // 2
    await store.call(lambda: store.inner.put("put/large", [memoryview(body)[:half], memoryview(body)[half:]]))
    assert (await store.head("put/large")).size == len(body)
    found, _ = await store.get("put/large")
    assert found == body
    place = half - 3
    assert await store.call(lambda: store.inner.get_range("put/large", place, place + 7)) == body[place : place + 7]


async def check_replace_needs_the_right_etag(make: Make) -> None:
    store = Steady(make())
    first = await store.create("swap/one", b"first")
    second = await store.replace("swap/one", b"second", first)
    assert second != first
    for stale in (first, ETag("no-such-etag")):
        with pytest.raises(Conflict):
            await store.call(lambda stale=stale: store.inner.replace("swap/one", b"third", stale))
    assert await store.get("swap/one") == (b"second", second)


async def check_replace_of_a_deleted_object_is_a_conflict(make: Make) -> None:
    store = Steady(make())
    etag = await store.create("swap/gone", b"first")
    await store.delete("swap/gone")
    with pytest.raises(Conflict):
        await store.call(lambda: store.inner.replace("swap/gone", b"second", etag))
    with pytest.raises(NotFound):
        await store.get("swap/gone")


async def check_etag_of_every_view_is_the_same(make: Make) -> None:
    store = Steady(make())
    etag = await store.create("swap/views", b"first")
    (listed,) = await store.list("swap/views")
    assert (await store.head("swap/views")).etag == etag == listed.etag
    assert await store.replace("swap/views", b"second", listed.etag) != etag


async def check_deleted_object_is_gone_and_its_name_is_free(make: Make) -> None:
    store = Steady(make())
    await store.create("delete/one", b"first")
    await store.delete("delete/one")
    with pytest.raises(NotFound):
        await store.get("delete/one")
    await store.create("delete/one", b"second")
    assert (await store.get("delete/one"))[0] == b"second"


async def check_ranges_are_cut_at_the_end(make: Make) -> None:
    store = Steady(make())
    await store.put("range/ten", b"0123456789")
    for start, end in [(0, 10), (3, 5), (8, 100), (10, 20), (50, 60), (4, 4), (0, 1)]:
        found = await store.call(lambda start=start, end=end: store.inner.get_range("range/ten", start, end))
        assert found == b"0123456789"[start:end], (start, end)
    with pytest.raises(Invalid):
        await store.call(lambda: store.inner.get_range("range/ten", 5, 3))
    with pytest.raises(Invalid):
        await store.call(lambda: store.inner.get_range("range/ten", -1, 3))


async def check_many_ranges_come_in_the_order_asked(make: Make) -> None:
    store = Steady(make())
    body = bytes(range(256)) * 8192
    await store.put("range/many", body)
    ranges = [(1_500_000, 1_500_010), (0, 5), (5, 9), (7, 7), (2_000_000, 2_000_100), (len(body) - 3, len(body) + 3)]
    found = await store.call(lambda: store.inner.get_ranges("range/many", ranges))
    assert found == [body[start:end] for start, end in ranges]
    assert await store.call(lambda: store.inner.get_ranges("range/many", [])) == []


async def check_list_is_sorted_by_the_bytes_of_the_whole_key(make: Make) -> None:
    store = Steady(make())
    for key in ODD_KEYS[1:][::-1]:
        await store.put(key, key.encode())
    expected = sorted(ODD_KEYS[1:], key=str.encode)
    listed = await store.list("list/")
    assert [info.key for info in listed] == expected
    assert [info.size for info in listed] == [len(key.encode()) for key in expected]


async def check_list_goes_on_after_any_key(make: Make) -> None:
    store = Steady(make())
    for key in ODD_KEYS[1:]:
        await store.put(key, b"x")
    expected = sorted(ODD_KEYS[1:], key=str.encode)
    for after in [*expected, "", "list/", "list/a", "list/b", "list/b/", "list/b/3", "list/zz", "zzz", "a//b"]:
        listed = [info.key for info in await store.list("list/", after)]
        assert listed == [key for key in expected if key.encode() > after.encode()], after


async def check_list_takes_any_prefix_and_limit(make: Make) -> None:
    store = Steady(make())
    for key in ODD_KEYS[1:]:
        await store.put(key, b"x")
    expected = sorted(ODD_KEYS[1:], key=str.encode)
    for prefix in [
        "list/a",
        "list/b",
        "list/b/",
        "list/b/1",
        "list/b/10",
        "li",
        "list/date=2026/11",
        "list/nothing",
        "x/y",
    ]:
        matching = [key for key in expected if key.startswith(prefix)]
        assert [info.key for info in await store.list(prefix)] == matching, prefix
        for limit in (0, 1, 3):
            assert [info.key for info in await store.list(prefix, limit=limit)] == matching[:limit]


async def check_keys_that_could_escape_are_refused(make: Make) -> None:
    store = Steady(make())
    bad = ["", "/", "/etc/passwd", "a/", "a//b", "..", "../a", "a/../../b", "./a", "a/.", ".hidden", "a/.tmp-1"]
    bad += ["a\x00b", "a\nb", "\ud800", "x" * 256, "a/" * 500 + "b"]
    for key in bad:
        for call in (
            store.get,
            store.head,
            store.delete,
            partial(store.create, body=b""),
            partial(store.put, body=b""),
        ):
            with pytest.raises(Invalid):
                await call(key)
    for prefix in ("../", "/", "a/../", "./", ".locks/", "//"):
        assert await store.list(prefix) == []


async def check_of_many_creators_one_wins(make: Make) -> None:
    stores = [Steady(make()) for _ in range(4)]

    async def race(number: int, key: Key) -> bytes | None:
        body = f"racer {number}".encode()
        try:
            await stores[number % 4].create(key, body)
        except Exists:
            return None
        return body

    for turn in range(3):
        key = f"race/create-{turn}"
        winners = [won for won in await asyncio.gather(*(race(n, key) for n in range(RACERS))) if won is not None]
        assert [(await stores[0].get(key))[0]] == winners


async def check_racing_swaps_lose_no_increment(make: Make) -> None:
    stores = [Steady(make()) for _ in range(3)]
    await stores[0].create("race/counter", b"start")

    async def append(store: Steady, letter: str) -> None:
        for number in range(5):
            for _ in range(TRIES):
                body, etag = await store.get("race/counter")
                try:
                    await store.replace("race/counter", body + f" {letter}{number}".encode(), etag)
                    break
                except Conflict:
                    await asyncio.sleep(0.001)
            else:
                raise AssertionError("never won")

    await asyncio.gather(*(append(store, letter) for store, letter in zip(stores, "abc", strict=True)))
    words = (await stores[0].get("race/counter"))[0].decode().split()
    assert sorted(words) == sorted(["start"] + [f"{letter}{number}" for letter in "abc" for number in range(5)])


async def check_no_reader_sees_a_torn_object(make: Make) -> None:
    writer, reader = Steady(make()), Steady(make())
    size = 200_000
    await writer.put("torn/one", b"0" * size)
    done = False

    async def write() -> None:
        nonlocal done
        for number in range(1, 20):
            await writer.put("torn/one", f"{number % 10}".encode() * size)
        done = True

    async def read() -> None:
        while not done:
            body, _ = await reader.get("torn/one")
            assert len(body) == size
            assert len(set(body)) == 1

    await asyncio.gather(write(), read(), read())


async def check_preconditions_are_proved(make: Make) -> None:
    store = make()
    for _ in range(TRIES):
        try:
            await prove_preconditions(store, "probe/")
            break
        except Unavailable:
            await _settle(store)
    await _settle(store)
    assert [info.key for info in await Steady(store).list("probe/")] == [] or isinstance(store, FaultyStore)


async def check_closed_store_refuses(make: Make) -> None:
    store = make()
    await store.close()
    with pytest.raises(Closed):
        await _retried(store, lambda: store.get("basic/one"))


CHECKS: list[Check] = [check for name, check in list(globals().items()) if name.startswith("check_")]


class Steady:
    """A store seen by a patient caller."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner

    async def call(self, ask: Callable[[], Awaitable[T]]) -> T:
        return await _retried(self.inner, ask)

    async def get(self, key: Key) -> tuple[bytes, ETag]:
        return await self.call(lambda: self.inner.get(key))

    async def head(self, key: Key) -> ObjectInfo:
        return await self.call(lambda: self.inner.head(key))

    async def put(self, key: Key, body: bytes) -> ETag:
        return await self.call(lambda: self.inner.put(key, body))

    async def delete(self, key: Key) -> None:
        await self.call(lambda: self.inner.delete(key))

    async def create(self, key: Key, body: bytes) -> ETag:
        """`body` must be this caller's own: on an unclear answer it tells whose object it is."""
        return await self._conditional(key, body, lambda: self.inner.create(key, body))

    async def replace(self, key: Key, body: bytes, etag: ETag) -> ETag:
        return await self._conditional(key, body, lambda: self.inner.replace(key, body, etag))

    async def list(self, prefix: Key, after: Key = "", limit: int | None = None) -> list[ObjectInfo]:
        async def gather() -> list[ObjectInfo]:
            return [info async for info in self.inner.list(prefix, after, limit)]

        return await self.call(gather)

    async def _conditional(self, key: Key, body: bytes, write: Callable[[], Awaitable[ETag]]) -> ETag:
        for _ in range(TRIES):
            try:
                return await write()
            except (Conflict, Ambiguous) as error:
                if not isinstance(self.inner, FaultyStore) and isinstance(error, Conflict):
                    raise
                await _settle(self.inner)
                try:
                    found, etag = await self.get(key)
                except NotFound:
                    if isinstance(error, Exists):
                        continue
                    if isinstance(error, Conflict):
                        raise error from None
                    continue
                if found == body:
                    return etag
                if isinstance(error, Conflict):
                    raise error from None
            except Unavailable:
                continue
        raise AssertionError("the store never gave a clear answer")


async def _retried(store: ObjectStore, ask: Callable[[], Awaitable[T]]) -> T:
    for _ in range(TRIES):
        try:
            return await ask()
        except Unavailable:
            await _settle(store)
    raise AssertionError("the store never gave a clear answer")


async def _settle(store: ObjectStore) -> None:
    if isinstance(store, FaultyStore):
        await store.settle()
