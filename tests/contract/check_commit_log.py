"""What a commit log promises on any log store, sound or faulty, as functions.

`make()` opens another instance of the store of one log; `truth()` opens one without faults, to look with. Every check runs
transactions by several `CommitLog`s and then holds what was answered against what is in the log.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from lakebed.clock import within
from lakebed.errors import LakebedError, Unavailable
from lakebed.kernel import (
    Add,
    CommitLog,
    Committed,
    Conflict,
    Decision,
    LogStore,
    Operation,
    Put,
    Remove,
    Unknown,
    Version,
    View,
    verify,
)
from tests.logs import IDENTITY, REGISTRY, all_commits, look, open_log, put, replayed, state_bytes, transactions

Make = Callable[[], Awaitable[LogStore]]
Check = Callable[[Make, Make, int], Awaitable[None]]

OPEN_S, SETTLE_S = 30.0, 30.0
TRANSACTIONS = 24
"""Per writer; services are slow."""


async def check_random_transactions_end_as_they_were_answered(make: Make, truth: Make, seed: int) -> None:
    await random_transactions(make, truth, seed)


async def random_transactions(
    make: Make, truth: Make, seed: int, timeout_s: float = 2.0, calm: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Three instances with two tasks each; the answers, after they have been held against the log. `calm` ends the faults."""
    logs = [await _opened(make, timeout_s) for _ in range(3)]
    chance, answers = Random(seed), dict[str, Any]()
    await asyncio.gather(
        *(_write(log, f"w{at}", Random(chance.random()), answers) for at, log in enumerate(logs) for _ in range(2))
    )
    calm()
    for log in logs:
        await _refreshed(log)  # also settles what was left in doubt
    store = await truth()
    await _compare(store, answers)
    expected = state_bytes(await replayed(store))
    for log in logs:
        await _refreshed(log)
        assert state_bytes(log.current) == expected
        await log.close()
    newcomer = await open_log(await truth(), create=None)
    assert state_bytes(newcomer.current) == expected
    await newcomer.close()
    assert [each for each in (await verify(store, REGISTRY)).findings if each.severity == "error"] == []
    await store.close()
    return answers


async def check_racing_openers_make_one_log(make: Make, truth: Make, seed: int) -> None:
    logs = await asyncio.gather(*(_opened(make) for _ in range(4)))
    assert {log.identity for log in logs} == {IDENTITY}
    store = await truth()
    assert len(await all_commits(store)) == 1
    for log in logs:
        await log.close()
    await store.close()


async def check_what_one_committed_another_reads(make: Make, truth: Make, seed: int) -> None:
    writer, reader = await _opened(make), await _opened(make)
    for number in range(8):
        txn = f"t{number}"
        if isinstance(await _insistently(writer, put("k", number), txn), Committed):
            seen = await _insistently(reader, look("k"), f"r{number}")
            assert isinstance(seen, Committed)
            assert seen.answer == number
    await writer.close()
    await reader.close()


async def check_waiter_is_woken_by_another_instance(make: Make, truth: Make, seed: int) -> None:
    writer, reader = await _opened(make), await _opened(make)
    waiting = asyncio.ensure_future(reader.wait_beyond(Version(0), SETTLE_S))
    await asyncio.sleep(0)
    await _insistently(writer, put("k", 1), "t")
    assert await within(SETTLE_S, waiting) >= 1
    await writer.close()
    await reader.close()


async def check_checkpoints_and_old_versions_survive(make: Make, truth: Make, seed: int) -> None:
    log = await _opened(make)
    states = {}
    for number in range(12):
        await _insistently(log, put(f"k{number % 4}", number), f"t{number}")
        states[log.current.version] = state_bytes(log.current)
        if number % 5 == 4:
            await _until_done(log.checkpoint)
    for version in (1, 5, 9, log.current.version):
        if version in states:
            assert state_bytes(await _until_done(lambda v=version: log.snapshot(Version(v)))) == states[version]
    await log.close()
    again = await open_log(await truth(), create=None)
    assert state_bytes(again.current) == states[again.current.version]
    await again.close()


CHECKS: list[Check] = [check for name, check in sorted(globals().items()) if name.startswith("check_")]


async def _write(log: CommitLog, writer: str, chance: Random, answers: dict[str, Any]) -> None:
    for _ in range(TRANSACTIONS // 2):
        txn = f"{writer}:{len(answers)}:{chance.random():.6f}"
        answers[txn] = None
        decide = _random_decision(chance)
        seen = log.current.get("shared")
        expected = {"shared": seen.version} if seen is not None and chance.random() < 0.3 else None
        first = None
        try:
            first = result = await log.commit(decide, txn_id=txn, expected=expected)
            if isinstance(result, Unknown) and chance.random() < 0.7:
                result = await log.commit(decide, txn_id=txn, expected=expected)
        except Unavailable as error:
            result = error if first is None else first  # a second try that fails leaves the first answer as it was
        answers[txn] = result


def _random_decision(chance: Random) -> Callable[[View], Decision[object]]:
    kind, number = chance.choice(["put", "add", "swap", "both"]), chance.randrange(1000)

    def decide(view: View) -> Decision[object]:
        operations: list[Operation] = []
        stream = view.stream(1)
        end = stream.end if stream else 0
        if kind in ("put", "both"):
            operations.append(Put.of("shared" if number % 3 else f"k{number % 7}", number))
        if kind == "swap" and stream is not None and stream.count:
            first = next(stream.entries())
            operations.append(Remove(stream=1, offset_start=first.offset_start, offset_end=first.offset_end))
            operations.append(_add(first.offset_start, first.offset_end, f"p{number}"))
        if kind in ("add", "both") or not operations:
            operations.append(_add(end, end + 1 + number % 5, f"s{number}"))
        return Decision(operations, number)

    return decide


def _add(start: int, end: int, segment: str) -> Add:
    return Add(stream=1, offset_start=start, offset_end=end, segment=segment, size=end - start, batches="YQ==")


async def _compare(store: LogStore, answers: dict[str, Any]) -> None:
    """Committed: once, at that version. Conflict or error: never. Unknown: at most once."""
    commits = await all_commits(store)
    found = Counter(transactions(commits))
    for txn, answer in answers.items():
        if isinstance(answer, Committed):
            assert found[txn] == 1, (txn, answer)
            assert txn in transactions([commits[answer.version]])
        elif isinstance(answer, Unknown):
            assert found[txn] <= 1, (txn, answer)
        else:
            assert isinstance(answer, Conflict | LakebedError)
            assert found[txn] == 0, (txn, answer)
    assert sum(found.values()) - 1 <= len(answers)


async def _opened(make: Make, timeout_s: float = 2.0) -> CommitLog:
    return await _until_done(lambda: _open_once(make, timeout_s))


async def _open_once(make: Make, timeout_s: float) -> CommitLog:
    return await open_log(await make(), commit_timeout_s=timeout_s, poll_interval_s=0.05)


async def _refreshed(log: CommitLog) -> None:
    await _until_done(log.refresh)


async def _until_done(work: Callable[[], Awaitable[Any]]) -> Any:
    """A faulty store may refuse; whoever means it tries again."""

    async def insist() -> Any:
        while True:
            try:
                return await work()
            except Unavailable:
                await asyncio.sleep(0)

    return await within(OPEN_S, insist())


async def _insistently(log: CommitLog, decide: Callable[[View], Decision[Any]], txn: str) -> Any:
    async def once() -> Any:
        result = await log.commit(decide, txn_id=txn)
        if isinstance(result, Unknown):
            raise Unavailable("unknown")
        return result

    return await _until_done(once)
