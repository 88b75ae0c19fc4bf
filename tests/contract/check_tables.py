"""What tables must do on any catalog and any store, as functions of a root.

A check opens the root several times where it wants several drivers; each has its own catalog and its own view of the tables.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import pytest

from lakebed.errors import Conflict, Fenced, NotFound
from lakebed.tables import Change, Job, Kind, TableCommit, TableRef, TableSet, dead_letters_of
from tests.lakes import Lake, job, new_ref

Check = Callable[[Lake], Awaitable[None]]
DRIVERS = 3


async def check_appended_files_are_in_both_tables(lake: Lake) -> None:
    tables, ref = lake.open(), new_ref()
    await tables.ensure(ref)
    first = [await lake.settle(ref, 0, 0, 10), await lake.settle(ref, 1, 0, 5)]
    second = [await lake.settle(ref, 0, 10, 12)]
    assert not any(done.repeated for done in (await tables.append(ref, job(1), first)).values())
    done = await tables.append(ref, job(2), second)
    paths = frozenset(file.path for file in first + second)
    for each in lake.open().formats:
        assert await each.files(ref) == await each.named(ref) == paths
        state = await each.state(ref)
        assert (state.version, state.sequence, state.job_id) == (done[each.name].version, 2, "job-2")
        assert state.foreign == ()


async def check_repeated_step_finds_itself_done(lake: Lake) -> None:
    tables, ref = lake.open(), new_ref()
    await tables.ensure(ref)
    await tables.ensure(ref)
    file = await lake.settle(ref, 0, 0, 10)
    first = await tables.append(ref, job(1), [file])
    again = await lake.open().append(ref, job(1), [file])
    assert {name: done.version for name, done in again.items()} == {name: done.version for name, done in first.items()}
    assert all(done.repeated for done in again.values())
    assert await _counts(tables, ref) == [1, 1]


async def check_step_between_the_formats_is_finished(lake: Lake) -> None:
    tables, ref = lake.open(), new_ref()
    await tables.ensure(ref)
    file = await lake.settle(ref, 0, 0, 10)
    await tables.iceberg.commit(ref, job(1), Change(added=(file,)))
    assert await _counts(tables, ref) == [1, 0]
    again = await lake.open().append(ref, job(1), [file])
    assert [again["iceberg"].repeated, again["delta"].repeated] == [True, False]
    assert await _counts(tables, ref) == [1, 1]


async def check_job_of_the_past_is_fenced(lake: Lake) -> None:
    tables, ref = lake.open(), new_ref()
    await tables.ensure(ref)
    late = await lake.settle(ref, 0, 0, 10, attempt="late")
    await tables.append(ref, job(2), [await lake.settle(ref, 0, 0, 10)])
    for each in tables.formats:
        with pytest.raises(Fenced):
            await each.commit(ref, job(1), Change(added=(late,)))
        with pytest.raises(Fenced):
            await each.commit(ref, Job("another", 2), Change(added=(late,)))
    assert await _counts(tables, ref) == [1, 1]


async def check_racing_drivers_commit_a_job_once(lake: Lake) -> None:
    ref = new_ref()
    drivers = [lake.open() for _ in range(DRIVERS)]
    await asyncio.gather(*(driver.ensure(ref) for driver in drivers))
    for number in range(1, 4):
        file = await lake.settle(ref, 0, number * 10, number * 10 + 10)
        done = await asyncio.gather(*(driver.append(ref, job(number), [file]) for driver in drivers))
        for name in ("iceberg", "delta"):
            assert sorted(each[name].repeated for each in done) == [False] + [True] * (DRIVERS - 1)
            assert len({each[name].version for each in done}) == 1
    assert await _counts(drivers[0], ref) == [3, 3]
    for name in ("iceberg", "delta"):
        assert lake.metrics.value("lakebed_table_commits_total", format=name, outcome="committed") == 3
        assert lake.metrics.value("lakebed_table_commits_total", format=name, outcome="repeated") == 3 * (DRIVERS - 1)


async def check_racing_replacements_leave_one(lake: Lake) -> None:
    ref = new_ref()
    drivers = [lake.open() for _ in range(DRIVERS)]
    await drivers[0].ensure(ref)
    small = [await lake.settle(ref, 0, start, start + 5) for start in (0, 5, 10)]
    await drivers[0].append(ref, job(1), small)
    large = [await lake.settle(ref, 0, 0, 15, attempt=f"try-{number}") for number in range(DRIVERS)]
    removed = [file.path for file in small]
    jobs = [Job(f"rewrite-{number}", 2) for number in range(DRIVERS)]
    tries = [_outcome(d.replace(ref, j, removed, [f])) for d, j, f in zip(drivers, jobs, large, strict=True)]
    assert sorted(await asyncio.gather(*tries)) == ["done"] + ["fenced"] * (DRIVERS - 1)
    held = [await each.files(ref) for each in drivers[0].formats]
    assert len(held[0]) == len(held[1]) == 1
    assert held[0] | held[1] <= {file.path for file in large}


async def check_replace_is_all_or_nothing(lake: Lake) -> None:
    tables, ref = lake.open(), new_ref()
    await tables.ensure(ref)
    old = [await lake.settle(ref, 0, 0, 5), await lake.settle(ref, 0, 5, 10)]
    other = await lake.settle(ref, 1, 0, 5)
    await tables.append(ref, job(1), [*old, other])
    new = await lake.settle(ref, 0, 0, 10, attempt="rewritten")
    for each in tables.formats:
        with pytest.raises(Conflict):
            await each.commit(ref, job(2), Change((new,), (old[0].path, "delta/not/there.parquet")))
        assert len(await each.files(ref)) == 3
        assert (await each.state(ref)).sequence == 1
    await tables.replace(ref, job(2), [file.path for file in old], [new])
    for each in tables.formats:
        assert await each.files(ref) == {new.path, other.path}
    again = await tables.replace(ref, job(2), [file.path for file in old], [new])
    assert all(done.repeated for done in again.values())


async def check_dropped_files_leave_both_tables_and_stay_stored(lake: Lake) -> None:
    tables, ref = lake.open(), new_ref()
    await tables.ensure(ref)
    files = [await lake.settle(ref, 0, start, start + 5) for start in (0, 5, 10)]
    await tables.append(ref, job(1), files)
    await tables.drop_files(ref, job(2), [files[0].path])
    for each in tables.formats:
        assert await each.files(ref) == {files[1].path, files[2].path}
    assert (await lake.store.head(files[0].path)).size == files[0].size_bytes
    await tables.drop_files(ref, job(3), [file.path for file in files[1:]])
    assert await _counts(tables, ref) == [0, 0]
    await tables.append(ref, job(4), [await lake.settle(ref, 0, 15, 20)])
    assert await _counts(tables, ref) == [1, 1]


async def check_change_of_nothing_is_no_commit(lake: Lake) -> None:
    tables, ref = lake.open(), new_ref()
    await tables.ensure(ref)
    done = await tables.append(ref, job(1), [])
    assert (done["iceberg"].version, done["delta"].version) == (None, 0)
    assert [(await each.state(ref)).sequence for each in tables.formats] == [0, 0]


async def check_restored_table_holds_exactly_what_is_given(lake: Lake) -> None:
    tables, ref = lake.open(), new_ref()
    await tables.ensure(ref)
    right = [await lake.settle(ref, 0, start, start + 5) for start in (0, 5, 10)]
    wrong = await lake.settle(ref, 0, 15, 20)
    await tables.iceberg.commit(ref, job(1), Change(added=(right[0], wrong)))
    await tables.delta.commit(ref, job(1), Change(added=(*right, wrong)))
    await tables.restore(ref, job(2), right)
    for each in tables.formats:
        assert await each.files(ref) == {file.path for file in right}


async def check_expiry_forgets_old_states_and_keeps_every_data_file(lake: Lake) -> None:
    tables, ref = lake.open(), new_ref()
    await tables.ensure(ref)
    files = [await lake.settle(ref, 0, start, start + 5) for start in (0, 5, 10)]
    for number, file in enumerate(files, 1):
        await tables.append(ref, job(number), [file])
    new = await lake.settle(ref, 0, 0, 15, attempt="rewritten")
    await tables.replace(ref, job(4), [file.path for file in files], [new])
    assert await tables.iceberg.named(ref) == {new.path, *(file.path for file in files)}
    assert await tables.iceberg.expire(ref, before_ms=1) == 0
    assert await tables.iceberg.expire(ref, before_ms=_LONG_AHEAD_MS) == 3
    assert await tables.iceberg.named(ref) == {new.path}
    offered = {new.path, *(file.path for file in files)}  # Delta's old versions are offered by time
    assert await tables.named(ref) == offered
    for file in files:
        assert (await lake.store.head(file.path)).size == file.size_bytes
    assert (await tables.append(ref, job(4), []))["iceberg"].repeated
    await tables.append(ref, job(5), [await lake.settle(ref, 0, 15, 20)])
    assert await _counts(tables, ref) == [2, 2]


async def check_old_states_are_bounded_in_number(lake: Lake) -> None:
    tables, ref = lake.open(replace(lake.settings, snapshots_max=2)), new_ref()
    await tables.ensure(ref)
    files = [await lake.settle(ref, 0, number * 5, number * 5 + 5) for number in range(4)]
    for number, file in enumerate(files, 1):
        await tables.append(ref, job(number), [file])
    await tables.drop_files(ref, job(5), [files[0].path])
    await tables.drop_files(ref, job(6), [files[1].path])
    assert await tables.iceberg.named(ref) == {file.path for file in files[1:]}
    assert [len(await each.files(ref)) for each in tables.formats] == [2, 2]
    assert [state.foreign for state in (await tables.state(ref)).values()] == [(), ()]


async def check_detached_table_stays_and_its_name_is_free(lake: Lake) -> None:
    tables, past = lake.open(), new_ref("returning")
    await tables.ensure(past)
    await tables.append(past, job(1), [await lake.settle(past, 0, 0, 5)])
    await tables.detach(past)
    await tables.detach(past)
    present = TableRef("returning", new_ref().topic_id)
    await tables.ensure(present)
    assert await _counts(tables, present) == [0, 0]
    assert await _counts(tables, past) == [1, 1]
    await tables.append(present, job(1), [await lake.settle(present, 0, 0, 5)])
    assert await _counts(tables, past) == [1, 1]


async def check_topic_created_again_never_meets_its_past(lake: Lake) -> None:
    tables, past = lake.open(), new_ref("again")
    await tables.ensure(past)
    await tables.append(past, job(7), [await lake.settle(past, 0, 0, 5)])
    present = TableRef("again", new_ref().topic_id)
    await tables.ensure(present)
    await tables.append(present, job(1), [await lake.settle(present, 0, 0, 5), await lake.settle(present, 1, 0, 5)])
    assert [await _counts(tables, past), await _counts(tables, present)] == [[1, 1], [2, 2]]


async def check_dropped_table_is_gone_and_its_files_are_not(lake: Lake) -> None:
    tables, ref = lake.open(), new_ref()
    await tables.ensure(ref)
    file = await lake.settle(ref, 0, 0, 5)
    await tables.append(ref, job(1), [file])
    await tables.drop(ref)
    await tables.drop(ref)
    for each in lake.open().formats:
        with pytest.raises(NotFound):
            await each.state(ref)
    assert (await lake.store.head(file.path)).size == file.size_bytes


async def check_dead_letters_have_a_table_of_their_own(lake: Lake) -> None:
    tables, ref = lake.open(), new_ref()
    letters = dead_letters_of(ref)
    assert letters.kind is Kind.DEAD_LETTERS
    await tables.ensure(ref)
    await tables.ensure(letters)
    await tables.append(ref, job(1), [await lake.settle(ref, 0, 0, 5)])
    assert [await _counts(tables, ref), await _counts(tables, letters)] == [[1, 1], [0, 0]]


async def check_topics_that_look_alike_have_different_tables(lake: Lake) -> None:
    tables = lake.open()
    refs = [
        new_ref(topic) for topic in ("Orders.v1", "orders_v1", "orders-v1", "_hidden", ".x", "x_deadbeef", "l" * 249)
    ]
    for ref in refs:
        await tables.ensure(ref)
        await tables.append(ref, job(1), [await lake.settle(ref, 0, 0, 5)])
    assert [await _counts(tables, ref) for ref in refs] == [[1, 1]] * len(refs)


CHECKS: list[Check] = [check for name, check in sorted(globals().items()) if name.startswith("check_")]

_LONG_AHEAD_MS = 4_000_000_000_000


async def _counts(tables: TableSet, ref: TableRef) -> list[int]:
    return [len(await each.files(ref)) for each in tables.formats]


async def _outcome(commit: Awaitable[Mapping[str, TableCommit]]) -> str:
    try:
        await commit
    except Fenced:
        return "fenced"
    return "done"
