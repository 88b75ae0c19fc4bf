"""Committing: decisions, expectations, groups, limits, time; nobody's trouble is his neighbour's."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from lakebed.clock import FakeClock, SystemClock
from lakebed.errors import Closed, Invalid, Unavailable
from lakebed.kernel import NO_VERSION, CommitLog, Committed, Conflict, Decision, Put, Puts, Remove, Unknown, View
from lakebed.observe import Metrics
from tests.intercepted import Intercepted
from tests.logs import (
    IDENTITY,
    REGISTRY,
    all_commits,
    delete,
    increment,
    look,
    object_store,
    open_log,
    put,
    replayed,
    state_bytes,
    transactions,
)
from tests.together import together
from tests.unit.kernel.test_stream_index import add, remove


async def test_commit_answers_with_version_timestamp_and_answer() -> None:
    log = await open_log(object_store())
    first = await log.commit(put("k", 1), txn_id="a")
    second = await log.commit(increment("k"), txn_id="b")
    assert isinstance(first, Committed)
    assert isinstance(second, Committed)
    assert (first.version, first.answer, second.version, second.answer) == (1, 1, 2, 2)
    assert first.timestamp < second.timestamp
    entry = log.current.get("k")
    assert entry is not None
    assert (entry.decode(int), entry.version) == (2, 2)
    await log.close()


async def test_loser_of_a_race_decides_anew_on_the_winners_state() -> None:
    store = object_store()
    one, other = await open_log(store), await open_log(store)
    results = await asyncio.gather(
        *(log.commit(increment("n"), txn_id=f"{at}:{i}") for i in range(20) for at, log in enumerate((one, other)))
    )
    assert sorted(result.answer for result in results) == list(range(1, 41))
    await one.refresh()
    await other.refresh()
    assert state_bytes(one.current) == state_bytes(other.current) == state_bytes(await replayed(store))
    await one.close()
    await other.close()


async def test_waiting_transactions_share_one_commit_and_carry_their_own_ids() -> None:
    store = object_store()
    log = await open_log(store)
    async with together() as go:
        for number in range(100):
            go(log.commit(increment("n"), txn_id=f"t{number}"))
    commits = await all_commits(store)
    assert len(commits) <= 4
    assert sorted(transactions(commits)[1:]) == sorted(f"t{number}" for number in range(100))
    assert log.current.get("n").decode(int) == 100  # type: ignore[union-attr]
    await log.close()


async def test_change_after_what_was_expected_is_a_conflict_and_neighbours_do_not_matter() -> None:
    log = await open_log(object_store())
    seen = await log.commit(put("k", 1), txn_id="1")
    await log.commit(put("neighbour", 1), txn_id="2")
    assert isinstance(await log.commit(put("k", 2), txn_id="3", expected={"k": seen.version}), Committed)  # type: ignore[union-attr]
    late = await log.commit(put("k", 3), txn_id="4", expected={"k": seen.version})  # type: ignore[union-attr]
    assert late == Conflict(3, "k")  # type: ignore[arg-type]
    assert log.current.get("k").decode(int) == 2  # type: ignore[union-attr]
    assert log.current.version == 3
    await log.close()


@pytest.mark.parametrize("kind", ["present", "absent", "deleted", "recreated"])
async def test_expectation_of_presence_or_absence_is_compared(kind: str) -> None:
    log = await open_log(object_store())
    version = (await log.commit(put("k", 1), txn_id="1")).version
    if kind in ("deleted", "recreated"):
        await log.commit(delete("k"), txn_id="2")
    if kind == "recreated":
        await log.commit(put("k", 1), txn_id="3")
    key = "other" if kind == "absent" else "k"
    absent = await log.commit(put(key, 2), txn_id="4", expected={key: NO_VERSION})
    assert isinstance(absent, Committed if kind in ("absent", "deleted") else Conflict)
    seen = await log.commit(put("x", 2), txn_id="5", expected={key: version})
    assert isinstance(seen, Committed if kind == "present" else Conflict)
    await log.close()


async def test_expectation_on_a_stream_is_compared() -> None:
    log = await open_log(object_store())
    append = await log.commit(lambda _: Decision([add(0, 5)], None), txn_id="1", expected={1: NO_VERSION})
    assert isinstance(append, Committed)
    assert isinstance(await log.commit(lambda _: Decision([add(5, 9)], None), txn_id="2", expected={1: 1}), Committed)
    assert await log.commit(lambda _: Decision([add(9, 12)], None), txn_id="3", expected={1: 1}) == Conflict(2, 1)  # type: ignore[arg-type]
    await log.close()


async def test_second_of_a_group_conflicts_with_the_first() -> None:
    log = await open_log(object_store())
    async with together() as go:
        first = go(log.commit(put("k", 1), txn_id="1", expected={"k": NO_VERSION}))
        second = go(log.commit(put("k", 2), txn_id="2", expected={"k": NO_VERSION}))
    assert isinstance(first.result(), Committed)
    assert second.result() == Conflict(first.result().version, "k")
    await log.close()


async def test_expectation_from_elsewhere_is_judged_on_a_fresh_snapshot() -> None:
    """What a client saw through one process must not be a conflict through another that lags behind."""
    store = object_store()
    behind, ahead = await open_log(store), await open_log(store)
    seen = await ahead.commit(put("k", 1), txn_id="1")
    assert isinstance(await behind.commit(put("k", 2), txn_id="2", expected={"k": seen.version}), Committed)  # type: ignore[union-attr]
    await behind.close()
    await ahead.close()


async def test_refusal_follows_a_fresh_look() -> None:
    store = object_store()
    behind, ahead = await open_log(store), await open_log(store)
    await ahead.commit(put("topic/a", 1), txn_id="1")

    def needs_topic(view: View) -> Decision[None]:
        if view.get("topic/a") is None:
            raise Invalid("unknown topic", "Create it")
        return Decision([Put.of("record", 1)], None)

    assert isinstance(await behind.commit(needs_topic, txn_id="2"), Committed)
    await behind.close()
    await ahead.close()


async def test_answer_without_operations_is_linearizable_and_commits_nothing() -> None:
    store = object_store()
    reader, writer = await open_log(store), await open_log(store)
    for number in range(20):
        written = await writer.commit(put("k", number), txn_id=f"w{number}")
        seen = await reader.commit(look("k"), txn_id=f"r{number}")
        assert isinstance(seen, Committed)
        assert (seen.answer, seen.version, seen.timestamp) == (number, written.version, written.timestamp)  # type: ignore[union-attr]
    assert reader.current.version == 20
    await reader.close()
    await writer.close()


async def test_reader_gets_its_answer_while_others_commit_without_pause() -> None:
    store = object_store()
    reader, writer = await open_log(store), await open_log(store)
    busy = True

    async def write() -> None:
        number = 0
        while busy:
            number += 1
            await writer.commit(put("k", number), txn_id=f"w{number}")

    writing = asyncio.ensure_future(write())
    for number in range(50):
        assert isinstance(await reader.commit(look("k"), txn_id=f"r{number}"), Committed)
    busy = False
    await writing
    await reader.close()
    await writer.close()


async def test_error_of_one_decision_spares_the_rest_of_the_group() -> None:
    log = await open_log(object_store())

    def broken(_: View) -> Decision[None]:
        raise ZeroDivisionError("mine")

    def raw(body: bytes) -> Decision[None]:
        return Decision([Put(key="raw", value=msgspec.Raw(body))], None)

    async with together() as go:
        bad = [
            go(log.commit(broken, txn_id="1")),
            go(log.commit(lambda _: Decision([Remove(stream=9, offset_start=0, offset_end=1)], None), txn_id="2")),
            go(log.commit(lambda _: None, txn_id="3")),  # type: ignore[arg-type, return-value]
            go(log.commit(lambda _: raw(b"{no json"), txn_id="4")),
            go(log.commit(lambda _: raw(b'{"a":\n1}'), txn_id="5")),
            go(log.commit(lambda _: Decision([Put.of("\ud800", 1)], None), txn_id="6")),
            go(log.commit(lambda _: Decision([Put(key=7, value=msgspec.Raw(b"1"))], None), txn_id="7")),  # type: ignore[arg-type]
            go(log.commit(lambda _: Decision([Puts.of({"raw": b"1", "other": b"{no json"})], None), txn_id="8")),
            go(
                log.commit(
                    lambda _: Decision([Puts(keys=["raw", "other"], values=[msgspec.Raw(b"1")])], None), txn_id="9"
                )
            ),
        ]
        good = [go(log.commit(increment("n"), txn_id=f"g{number}")) for number in range(5)]
    assert isinstance(bad[0].exception(), ZeroDivisionError)
    assert all(each.exception() is not None for each in bad)
    assert [each.result().answer for each in good] == [1, 2, 3, 4, 5]
    await log.close()
    again = await open_log(log._head.store, create=None)
    assert [key for key, _ in again.current.scan()] == ["kernel/identity", "n"]
    await again.close()


async def test_two_transactions_of_one_id_never_share_a_commit() -> None:
    """Replay tells transactions of a commit apart by their ids: a swap done twice in one would not replay."""
    store = object_store()
    log = await open_log(store)
    await log.commit(lambda _: Decision([add(0, 5)], None), txn_id="0")
    async with together() as go:
        for segment in ("a", "b"):
            go(log.commit(lambda _, s=segment: Decision([remove(0, 5), add(0, 5, s)], None), txn_id="same"))
    await log.close()
    assert state_bytes(await replayed(store)) == state_bytes(log.current)


async def test_group_too_large_for_one_commit_is_split_in_order() -> None:
    store = object_store()
    log = await open_log(store, group_max_bytes=2000)
    async with together() as go:
        done = [go(log.commit(put(f"k{number}", "x" * 500), txn_id=f"t{number}")) for number in range(20)]
    versions = [each.result().version for each in done]
    assert versions == sorted(versions)
    assert max(versions) >= 6
    assert max([len(await store.read(version) or b"") for version in set(versions)]) < 2300
    await log.close()


async def test_transaction_larger_than_a_commit_is_refused_alone() -> None:
    log = await open_log(object_store(), group_max_bytes=2000)
    async with together() as go:
        large = go(log.commit(put("large", "x" * 3000), txn_id="l"))
        small = go(log.commit(put("small", 1), txn_id="s"))
    assert isinstance(large.exception(), Invalid)
    assert "split" in large.exception().remedy.lower()
    assert isinstance(small.result(), Committed)
    await log.close()


async def test_queue_over_its_limit_tells_to_come_back() -> None:
    log = await open_log(object_store(), queue_limit=5, group_max_transactions=2)
    async with together() as go:
        all_of_them = [go(log.commit(increment("n"), txn_id=f"t{number}")) for number in range(20)]
    refused = [each for each in all_of_them if each.exception() is not None]
    assert refused
    assert all(isinstance(each.exception(), Unavailable) for each in refused)
    assert log.current.get("n").decode(int) == 20 - len(refused)  # type: ignore[union-attr]
    await log.close()


async def test_timestamps_grow_even_when_the_clock_does_not() -> None:
    clock = FakeClock()
    store = object_store(clock=clock)
    log = await open_log(store, clock=clock)
    for number in range(5):
        await log.commit(put("k", number), txn_id=f"t{number}")
    clock._now_ms -= 100_000
    await log.commit(put("k", 9), txn_id="back")
    stamps = [commit.timestamp for commit in await all_commits(store)]
    assert stamps == sorted(set(stamps))
    assert stamps[-1] == "2023-11-14T22:13:20.006Z"
    await log.close()


async def test_cancelled_before_its_turn_is_not_committed() -> None:
    store = Intercepted(object_store())
    log = await open_log(store)
    gate = asyncio.Event()

    async def held(create, *args):  # type: ignore[no-untyped-def]
        await gate.wait()
        await create(*args)

    store.hooks["create"] = held
    first = asyncio.ensure_future(log.commit(put("a", 1), txn_id="1"))
    await asyncio.sleep(0.01)
    second = asyncio.ensure_future(log.commit(put("b", 1), txn_id="2"))
    await asyncio.sleep(0.01)
    second.cancel()
    gate.set()
    await first
    await log.commit(put("c", 1), txn_id="3")
    assert transactions(await all_commits(store.inner))[1:] == ["1", "3"]
    await log.close()


async def test_closing_finishes_what_is_queued_and_refuses_what_comes_after() -> None:
    store = object_store()
    log = await open_log(store)
    waiting = [asyncio.ensure_future(log.commit(increment("n"), txn_id=f"t{number}")) for number in range(10)]
    await asyncio.sleep(0)
    await log.close()
    assert all(isinstance(each, Committed) for each in await asyncio.gather(*waiting))
    with pytest.raises(Closed):
        await log.commit(put("k", 1), txn_id="late")
    with pytest.raises(Closed):
        await log.wait_beyond(log.current.version, 5)
    await log.close()


async def test_closing_while_the_store_hangs_answers_everybody() -> None:
    store = Intercepted(object_store())
    log = await open_log(store, commit_timeout_s=0.1)

    async def hang(*_: object) -> None:
        await asyncio.Event().wait()

    store.hooks["create"] = hang
    flying = asyncio.ensure_future(log.commit(put("a", 1), txn_id="1"))
    await asyncio.sleep(0.01)
    queued = asyncio.ensure_future(log.commit(put("b", 1), txn_id="2"))
    await asyncio.sleep(0.01)
    await log.close()
    assert await flying == Unknown(1)  # type: ignore[arg-type]
    with pytest.raises(Closed):
        await queued


async def test_too_many_racers_are_a_conflict_after_the_limit() -> None:
    inner = object_store()
    store = Intercepted(inner)
    log = await open_log(store, retry_limit=3)
    racer = await open_log(inner)
    count = 0

    async def always_later(create, *args):  # type: ignore[no-untyped-def]
        nonlocal count
        count += 1
        await racer.commit(put("k", count), txn_id=f"r{count}")
        await create(*args)

    store.hooks["create"] = always_later
    result = await log.commit(put("mine", 1), txn_id="m")
    assert isinstance(result, Conflict)
    assert "m" not in transactions(await all_commits(inner))
    store.hooks.clear()
    await log.close()
    await racer.close()


async def test_metrics_tell_what_happened() -> None:
    metrics = Metrics()
    log = await CommitLog.open(object_store(), REGISTRY, clock=SystemClock(), create=IDENTITY, metrics=metrics)
    await log.commit(put("k", 1), txn_id="1")
    await log.commit(put("k", 1), txn_id="2", expected={"k": NO_VERSION})
    await log.checkpoint()
    text = metrics.text().decode()
    for name in (
        "commits_total",
        "transactions_total",
        "conflicts_total",
        "retries_total",
        "unknowns_total",
        "group_transactions_bucket",
        "commit_seconds_count",
        "replay_seconds_count",
        "checkpoint_seconds_count",
        "state_bytes",
        "checkpoint_bytes_total",
        "commit_bytes_total",
    ):
        assert f"kernel_{name}" in text, name
    values = {
        line.split("{")[0]: float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if line.startswith("lakebed_kernel")
    }
    assert values["lakebed_kernel_commits_total"] == 1
    assert values["lakebed_kernel_conflicts_total"] == 1
    assert values["lakebed_kernel_state_bytes"] == log.current.weight_bytes
    assert values["lakebed_kernel_version"] == 1
    await log.close()
