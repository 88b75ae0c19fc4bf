"""Group commit: the one place in a process that writes a log.

While one commit is in flight the next one gathers. A number whose fate is unknown is tried again with the same bytes until
someone occupies it; nobody goes on to the next number before.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from enum import Enum
from typing import Any

from lakebed.clock import Clock, jittered, within
from lakebed.config import KernelSettings
from lakebed.errors import Ambiguous, Closed, Exists, Unavailable
from lakebed.kernel.ending import ended
from lakebed.kernel.group import Decide, Plan, Planner, Transaction
from lakebed.kernel.head import Head
from lakebed.kernel.identity import oldest_version
from lakebed.kernel.operations import txn_id_of
from lakebed.kernel.results import CommitResult, Conflict, Unknown
from lakebed.kernel.store import Version

_OUTCOMES_MAX = 10_000
_RETRY_FIRST_S, _RETRY_MAX_S = 0.005, 1.0
_REBASE_FIRST_S, _REBASE_MAX_S = 0.0002, 0.02


class Fate(Enum):
    """What became of a number that we tried to occupy."""

    WON = "ours"
    LOST = "another's, or of the past: nothing of ours is committed"
    DOUBTFUL = "time is up, and it may be ours or may become so"
    PAST = "so long ago that nobody can tell any more"


class Committer:
    """Takes transactions from many tasks and writes commits, one at a time."""

    def __init__(
        self,
        head: Head,
        settings: KernelSettings,
        writer: str,
        wants_checkpoint: Callable[[], bool],
        won: Callable[[Plan], None],
    ) -> None:
        self._head = head
        self._settings = settings
        self._clock: Clock = head.clock
        self._planner = Planner(head.registry, writer, settings.group_max_bytes)
        self._wants_checkpoint = wants_checkpoint
        self._won = won
        self._queue: deque[Transaction] = deque()
        self._arrived = asyncio.Event()
        self._stuck: Plan | None = None
        self._turn: AsyncExitStack | None = None
        """Held by who keeps losing."""
        self._outcomes: OrderedDict[str, CommitResult[Any]] = OrderedDict()
        self._closed = False
        self.writing = False
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"committer {head.store.name}")

    def submit(
        self, decide: Decide, txn_id: str, expected: Mapping[str | int, int] | None
    ) -> asyncio.Future[CommitResult[Any]]:
        """Queue a transaction; the future gets its result."""
        if self._closed:
            raise Closed(f"the log {self._head.store.name} is closed", "Open it again")
        if len(self._queue) >= self._settings.queue_limit:
            raise Unavailable(
                f"{len(self._queue)} transactions wait already", "Retry later, or raise kernel.queue_limit"
            )
        future: asyncio.Future[CommitResult[Any]] = asyncio.get_running_loop().create_future()
        self._queue.append(Transaction(decide, txn_id, expected, future))
        self._arrived.set()
        return future

    async def close(self) -> None:
        """Finish what is queued, then stop. What cannot be finished in time is told so."""
        self._closed = True
        self._arrived.set()
        await ended(self._task, self._settings.commit_timeout_s)
        for waiting in self._queue:
            waiting.fail(Closed("the log was closed before this transaction's turn", "Open it and retry"))

    async def _run(self) -> None:
        while self._queue or not self._closed:
            await self._gather()
            batch = self._take()
            if not batch and self._stuck is None:
                continue
            try:
                await self._settle(batch)
            except asyncio.CancelledError:
                for waiting in batch:
                    waiting.answer(Unknown(self._head.next))
                raise
            except Exception as error:  # noqa: BLE001 whoever waits must hear of it, and the next batch has its own chance
                for waiting in batch:
                    waiting.fail(error)

    async def _gather(self) -> None:
        if self._queue or self._closed:
            return
        self._arrived.clear()
        if self._stuck is None:
            await self._arrived.wait()
            return
        with suppress(TimeoutError):
            await within(_RETRY_MAX_S, self._arrived.wait())

    def _take(self) -> list[Transaction]:
        count = min(len(self._queue), self._settings.group_max_transactions)
        return [self._queue.popleft() for _ in range(count)]

    async def _settle(self, batch: list[Transaction]) -> None:
        """Get every transaction of the batch an answer. Refusals and mere answers need a snapshot younger than the batch."""
        if self._stuck is not None and not await self._unstick(batch):
            return
        try:
            await self._carry_through(self._without_known(batch) if self._outcomes else batch)
        finally:
            if self._turn is not None:
                await self._end_turn()

    async def _end_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            await turn.aclose()

    async def _carry_through(self, batch: list[Transaction]) -> None:
        """Plan and write until all are answered; who keeps losing asks for its turn."""
        attempt, fresh = 0, False
        while batch:
            if self._head.is_old():
                await self._head.catch_up()
            plan = self._planner.plan(self._head.snapshot, batch, self._clock.now_ms(), self._wants_checkpoint)
            if not fresh and (plan.refusals or (plan.answers and not plan.body)):
                fresh = True
                if await self._caught_up():
                    continue
            if await self._carried_out(plan):
                await asyncio.sleep(0)  # whoever waited hears of it before the next commit keeps the loop
                batch, attempt, fresh = batch[plan.taken :], 0, True
                if self._turn is not None:
                    await self._end_turn()
                continue
            if self._stuck is plan:
                self._requeue([waiting for waiting, _ in plan.refusals] + batch[plan.taken :])
                return
            attempt += 1
            if attempt > self._settings.retry_limit:
                self._give_up(batch)
                return
            if attempt == self._settings.turn_after:
                self._turn = AsyncExitStack()
                await self._turn.enter_async_context(self._head.store.turn())
            await self._rebase(attempt)
            fresh = True

    async def _caught_up(self) -> bool:
        """Whether there was anything to catch up with."""
        before = self._head.version
        await self._head.catch_up()
        return self._head.version != before

    async def _carried_out(self, plan: Plan) -> bool:
        """Write the plan, or only give its answers; False when others were faster or nobody can tell."""
        if not plan.body:
            self._answer(plan, self._head.version, self._head.snapshot.timestamp)
            return True
        self.writing = True
        began_s = self._clock.monotonic_s()
        try:
            fate = await self._create(plan, self._clock.boot_s())
        finally:
            self.writing = False
            self._head.metrics.commit_s.observe(self._clock.monotonic_s() - began_s)
        if fate is Fate.DOUBTFUL:
            self._stuck = plan
        if fate in (Fate.DOUBTFUL, Fate.PAST):
            self._tell_unknown(plan)
        return fate is Fate.WON

    async def _create(self, plan: Plan, began_s: float) -> Fate:
        """Occupy the plan's number with the plan's bytes, however often that takes. `Unavailable`: surely not occupied."""
        deadline_s = self._clock.monotonic_s() + self._settings.commit_timeout_s
        pause_s, doubtful, occupied = _RETRY_FIRST_S, self._stuck is plan, False
        while True:
            try:
                if doubtful and not occupied and await self._is_long_ago(plan):
                    return Fate.PAST
                if not occupied:
                    taken = await self._taken(plan)
                    doubtful = True  # whatever fails from here on does not undo it
                    if taken and not await self._is_ours(plan):
                        return Fate.LOST
                    occupied = True
                return await self._accepted(plan, began_s)
            except Unavailable as error:
                doubtful = doubtful or isinstance(error, Ambiguous)
                if self._clock.monotonic_s() >= deadline_s:
                    if doubtful:
                        return Fate.DOUBTFUL
                    raise
            await self._clock.sleep(jittered(self._clock, pause_s))
            pause_s = min(2 * pause_s, _RETRY_MAX_S)

    async def _is_long_ago(self, plan: Plan) -> bool:
        """Before a number is tried again: whether clean-up may have taken it since, with our commit in it or without."""
        if not self._head.is_old():
            return False
        await self._head.catch_up()
        return plan.version < oldest_version(self._head.snapshot)

    async def _taken(self, plan: Plan) -> bool:
        """Create the commit; whether somebody had done so before."""
        try:
            await self._head.store.create(plan.version, plan.body)
        except Exists:
            return True
        return False

    async def _is_ours(self, plan: Plan) -> bool:
        there = await self._head.store.read(plan.version)
        return there is not None and txn_id_of(there) == plan.txn_id

    async def _accepted(self, plan: Plan, began_s: float) -> Fate:
        accepted = await self._head.accept(plan.snapshot(), len(plan.body), plan.hint, began_s)
        if not accepted:
            self._head.metrics.reloads.inc()
            return Fate.LOST if accepted is False else Fate.PAST
        metrics = self._head.metrics
        metrics.commits.inc()
        metrics.commit_bytes.inc(len(plan.body))
        metrics.transactions.inc(plan.writers)
        metrics.group_size.observe(plan.writers)
        if plan is self._stuck:
            self._remember(plan)
        self._answer(plan, plan.version, plan.timestamp)
        self._won(plan)
        return Fate.WON

    async def _unstick(self, batch: list[Transaction]) -> bool:
        """Find out what became of a number that was left in doubt; False when that still cannot be told."""
        plan = self._stuck
        assert plan is not None
        fate = await self._create(plan, self._clock.boot_s())
        if fate is Fate.DOUBTFUL:
            for waiting in batch:
                if self._is_stuck(waiting):
                    self._head.metrics.unknowns.inc()
                    waiting.answer(Unknown(plan.version))
                else:
                    waiting.fail(_in_doubt(plan.version))
            return False
        if fate is not Fate.WON:
            await self._head.catch_up()
        self._stuck = None
        return True

    def _is_stuck(self, waiting: Transaction) -> bool:
        return self._stuck is not None and any(one.txn_id == waiting.txn_id for one, _ in self._stuck.answers)

    def _without_known(self, batch: list[Transaction]) -> list[Transaction]:
        """Answer those whose earlier try has turned out to be committed."""
        fresh = []
        for waiting in batch:
            outcome = self._outcomes.get(waiting.txn_id)
            if outcome is None:
                fresh.append(waiting)
            else:
                waiting.answer(outcome)
        return fresh

    def _remember(self, plan: Plan) -> None:
        for waiting, result in plan.results(plan.version, plan.timestamp):
            self._outcomes[waiting.txn_id] = result
        while len(self._outcomes) > _OUTCOMES_MAX:
            self._outcomes.popitem(last=False)

    async def _rebase(self, attempt: int) -> None:
        self._head.metrics.retries.inc()
        if attempt > 1:
            await self._clock.sleep(jittered(self._clock, min(_REBASE_FIRST_S * 2**attempt, _REBASE_MAX_S)))
        await self._head.catch_up()

    def _requeue(self, rest: list[Transaction]) -> None:
        self._queue.extendleft(reversed(rest))

    def _answer(self, plan: Plan, version: Version, timestamp: str) -> None:
        for waiting, result in plan.results(version, timestamp):
            waiting.answer(result)
        for waiting, refusal in plan.refusals:
            if isinstance(refusal, Conflict):
                waiting.answer(refusal)
            else:
                waiting.fail(refusal)

    def _tell_unknown(self, plan: Plan) -> None:
        for waiting, _ in plan.answers:
            self._head.metrics.unknowns.inc()
            waiting.answer(Unknown(plan.version))

    def _give_up(self, batch: list[Transaction]) -> None:
        for waiting in batch:
            waiting.answer(Conflict(self._head.version))


def _in_doubt(version: Version) -> Unavailable:
    return Unavailable(f"version {version} is still in doubt and nothing can be committed after it", "Retry later")
