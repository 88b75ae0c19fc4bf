"""Writes whose answer is lost: nothing is applied twice, nobody's commit is lost, and nobody is told a falsehood."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from lakebed.errors import Ambiguous, Exists, Unavailable
from lakebed.kernel import CommitLog, Committed, LogStore, Unknown
from tests.intercepted import Intercepted
from tests.logs import all_commits, increment, object_store, open_log, put, transactions
from tests.together import together

TIMEOUT_S = 0.15


@pytest.fixture
async def store() -> Intercepted:
    return Intercepted(object_store())


@pytest.fixture
async def log(store: Intercepted) -> AsyncIterator[CommitLog]:
    opened = await open_log(store, commit_timeout_s=TIMEOUT_S)
    yield opened
    store.hooks.clear()
    await opened.close()


def failing(times: int, error: type[Exception], *, after: bool) -> Callable[..., object]:
    """The first calls fail, after or before they are carried out."""
    left = times

    async def hook(call, *args):  # type: ignore[no-untyped-def]
        nonlocal left
        left -= 1
        if left < 0:
            return await call(*args)
        if after:
            await call(*args)
        raise error("by the test")

    return hook


async def ids(store: Intercepted) -> list[str]:
    return transactions(await all_commits(store.inner))[1:]


@pytest.mark.parametrize(("error", "after"), [(Ambiguous, True), (Ambiguous, False), (Exists, True)])
async def test_lost_answer_is_resolved_by_comparing_ids(
    store: Intercepted, log: CommitLog, error: type[Exception], after: bool
) -> None:
    store.hooks["create"] = failing(1, error, after=after)
    result = await log.commit(increment("n"), txn_id="a")
    assert isinstance(result, Committed)
    assert (result.version, result.answer) == (1, 1)
    assert await ids(store) == ["a"]


async def test_store_that_is_away_is_unavailable_and_nothing_happened(store: Intercepted, log: CommitLog) -> None:
    store.hooks["create"] = failing(1000, Unavailable, after=False)
    with pytest.raises(Unavailable):
        await log.commit(put("k", 1), txn_id="a")
    store.hooks.clear()
    assert isinstance(await log.commit(put("k", 2), txn_id="b"), Committed)
    assert await ids(store) == ["b"]


async def test_time_out_after_landing_is_unknown_and_asking_again_gives_the_first_outcome(
    store: Intercepted, log: CommitLog
) -> None:
    store.hooks["create"] = failing(1000, Ambiguous, after=True)
    store.hooks["read"] = failing(1000, Unavailable, after=False)
    assert await log.commit(increment("n"), txn_id="a") == Unknown(1)  # type: ignore[arg-type]
    store.hooks.clear()
    again = await log.commit(increment("n"), txn_id="a")
    assert isinstance(again, Committed)
    assert (again.version, again.answer) == (1, 1)
    assert (await log.commit(increment("n"), txn_id="b")).answer == 2  # type: ignore[union-attr]
    assert await ids(store) == ["a", "b"]


async def test_time_out_without_landing_ends_up_committed_once(store: Intercepted, log: CommitLog) -> None:
    store.hooks["create"] = failing(1000, Ambiguous, after=False)
    assert isinstance(await log.commit(increment("n"), txn_id="a"), Unknown)
    store.hooks.clear()
    again = await log.commit(increment("n"), txn_id="a")
    assert isinstance(again, Committed)
    assert again.answer == 1
    assert await ids(store) == ["a"]


async def test_nobody_goes_on_before_the_doubtful_number_is_settled(store: Intercepted, log: CommitLog) -> None:
    store.hooks["create"] = failing(1000, Ambiguous, after=False)
    assert isinstance(await log.commit(put("k", 1), txn_id="a"), Unknown)
    with pytest.raises(Unavailable, match="in doubt"):
        await log.commit(put("k", 2), txn_id="b")
    assert await log.commit(put("k", 1), txn_id="a") == Unknown(1)  # type: ignore[arg-type]
    store.hooks.clear()
    assert (await log.commit(put("k", 3), txn_id="c")).version == 2  # type: ignore[union-attr]
    assert await ids(store) == ["a", "c"]


async def test_doubtful_number_is_settled_without_anyone_asking(store: Intercepted, log: CommitLog) -> None:
    store.hooks["create"] = failing(1000, Ambiguous, after=False)
    assert isinstance(await log.commit(put("k", 1), txn_id="a"), Unknown)
    store.hooks.clear()
    assert await log.wait_beyond(0, 10) == 1  # type: ignore[arg-type]
    assert await ids(store) == ["a"]


async def test_put_that_lands_after_its_time_out_loses_nobodys_commit(store: Intercepted, log: CommitLog) -> None:
    late = []

    async def drop(create, *args):  # type: ignore[no-untyped-def]
        late.append((create, args))
        raise Ambiguous("no answer yet")

    store.hooks["create"] = drop
    assert isinstance(await log.commit(put("mine", 1), txn_id="a"), Unknown)
    other = await open_log(store.inner)
    assert (await other.commit(put("theirs", 1), txn_id="b")).version == 1  # type: ignore[union-attr]
    for create, args in late:
        with pytest.raises(Exists):
            await create(*args)
    store.hooks.clear()
    again = await log.commit(put("mine", 1), txn_id="a")
    assert isinstance(again, Committed)
    assert again.version == 2
    assert await ids(store) == ["b", "a"]
    await other.close()


async def test_put_that_lands_late_is_found_by_the_next_and_not_done_twice(store: Intercepted, log: CommitLog) -> None:
    late = []

    async def drop(create, *args):  # type: ignore[no-untyped-def]
        late.append((create, args))
        raise Ambiguous("no answer yet")

    store.hooks["create"] = drop
    assert isinstance(await log.commit(increment("n"), txn_id="a"), Unknown)
    await late[0][0](*late[0][1])
    store.hooks.clear()
    other = await open_log(store.inner)
    assert (await other.commit(increment("n"), txn_id="b")).answer == 2  # type: ignore[union-attr]
    assert (await log.commit(increment("n"), txn_id="a")).answer == 1  # type: ignore[union-attr]
    assert (await log.commit(increment("n"), txn_id="c")).answer == 3  # type: ignore[union-attr]
    assert await ids(store) == ["a", "b", "c"]
    await other.close()


async def test_read_back_that_fails_is_doubt_and_not_failure(store: Intercepted, log: CommitLog) -> None:
    """The store says Exists of our own write, and cannot be read: whoever is told 'nothing happened' is told wrong."""
    store.hooks["create"] = failing(1, Exists, after=True)
    store.hooks["read"] = failing(1000, Unavailable, after=False)
    assert isinstance(await log.commit(put("k", 1), txn_id="a"), Unknown)
    store.hooks.clear()
    assert isinstance(await log.commit(put("k", 1), txn_id="a"), Committed)
    assert await ids(store) == ["a"]


async def test_group_in_doubt_leaves_those_behind_it_in_the_queue(store: Intercepted, log: CommitLog) -> None:
    store.hooks["create"] = failing(1000, Ambiguous, after=False)
    async with together() as go:
        first = go(log.commit(increment("n"), txn_id="a"))
        await asyncio.sleep(0.02)
        behind = go(log.commit(increment("n"), txn_id="b"))
        await first
        store.hooks.clear()
    assert isinstance(first.result(), Unknown)
    assert behind.result().answer == 2
    assert await ids(store) == ["a", "b"]


async def test_refusal_that_rests_on_a_doubtful_commit_is_not_given_yet(store: Intercepted, log: CommitLog) -> None:
    """A conflict with a neighbour of the group is only true if the neighbour is committed."""
    stolen = False

    async def steal(create, *args):  # type: ignore[no-untyped-def]
        nonlocal stolen
        if not stolen:
            stolen = True
            await other.commit(put("unrelated", 1), txn_id="o")
        await create(*args)

    other = await open_log(store.inner)
    store.hooks["create"] = steal
    calls = 0

    def once(view):  # type: ignore[no-untyped-def]
        nonlocal calls
        calls += 1
        if calls > 1:
            raise ValueError("not a second time")
        return put("k", 1)(view)

    async with together() as go:
        first = go(log.commit(once, txn_id="a"))
        second = go(log.commit(put("k", 2), txn_id="b", expected={"k": -1}))
    assert isinstance(first.exception(), ValueError)
    assert isinstance(second.result(), Committed)
    assert await ids(store) == ["o", "b"]
    await other.close()


async def test_catching_up_that_fails_is_unavailable_and_nothing_happened(store: Intercepted, log: CommitLog) -> None:
    other: LogStore = store.inner
    racer = await open_log(other)
    await racer.commit(put("k", 1), txn_id="r")
    store.hooks["read_many"] = failing(1, Unavailable, after=False)
    with pytest.raises(Unavailable):
        await log.commit(put("k", 2), txn_id="a")
    assert isinstance(await log.commit(put("k", 3), txn_id="b"), Committed)
    assert await ids(store) == ["r", "b"]
    await racer.close()
