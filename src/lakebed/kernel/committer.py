"""Group commit: the one place in a process that writes a log.

While one commit is in flight the next one gathers. A number whose fate is unknown is tried again with the same bytes until
someone occupies it; nobody goes on to the next number before.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from lakebed.clock import Clock, jittered
from lakebed.config import KernelSettings
from lakebed.errors import Ambiguous, Closed, Exists, Unavailable
from lakebed.kernel.group import Decide, Plan, Planner, Transaction
from lakebed.kernel.head import Head
from lakebed.kernel.operations import txn_id_of
from lakebed.kernel.results import CommitResult, Conflict, Unknown
from lakebed.kernel.store import Version

_OUTCOMES_MAX = 10_000
_RETRY_FIRST_S, _RETRY_MAX_S = 0.005, 1.0
_REBASE_FIRST_S, _REBASE_MAX_S = 0.0002, 0.02


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
        self._outcomes: OrderedDict[str, CommitResult[Any]] = OrderedDict()
        self._closed = False
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
        done, _ = await asyncio.wait({self._task}, timeout=self._settings.commit_timeout_s)
        if not done:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
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
            await asyncio.wait_for(self._arrived.wait(), _RETRY_MAX_S)

    def _take(self) -> list[Transaction]:
        count = min(len(self._queue), self._settings.group_max_transactions)
        return [self._queue.popleft() for _ in range(count)]

    async def _settle(self, batch: list[Transaction]) -> None:
        """Get every transaction of the batch an answer."""
        if self._stuck is not None and not await self._unstick(batch):
            return
        batch = self._without_known(batch)
        attempt = 0
        while batch:
            plan = self._planner.plan(self._head.snapshot, batch, self._clock.now_ms(), self._wants_checkpoint)
            if await self._carried_out(plan):
                batch, attempt = batch[plan.taken :], 0
                continue
            if self._stuck is plan:
                self._requeue(batch[plan.taken :])
                return
            attempt += 1
            if attempt > self._settings.retry_limit:
                self._give_up(batch)
                return
            await self._rebase(attempt)

    async def _carried_out(self, plan: Plan) -> bool:
        """Write the plan, or only make sure that its answers hold; False when others were faster or nobody can tell."""
        began_s = self._clock.boot_s()
        if not plan.body:
            before = self._head.version
            if plan.answers:
                await self._head.catch_up()
            if self._head.version != before:
                return False
            self._answer(plan, before)
            return True
        with self._head.metrics.committing():
            won = await self._create(plan, began_s)
        if won is None:
            self._stuck = plan
            self._tell_unknown(plan)
        return won is True

    async def _create(self, plan: Plan, began_s: float) -> bool | None:
        """Occupy the plan's number. None: time is up and it may or may not be ours."""
        deadline_s = self._clock.monotonic_s() + self._settings.commit_timeout_s
        pause_s, ambiguous = _RETRY_FIRST_S, self._stuck is plan
        while True:
            try:
                occupied = await self._occupy(plan)
            except Unavailable as error:
                ambiguous = ambiguous or isinstance(error, Ambiguous)
                if self._clock.monotonic_s() >= deadline_s:
                    if ambiguous:
                        return None
                    raise
                await self._clock.sleep(jittered(self._clock, pause_s))
                pause_s = min(2 * pause_s, _RETRY_MAX_S)
                continue
            return occupied and await self._accept(plan, began_s)

    async def _occupy(self, plan: Plan) -> bool:
        """Whether the number is ours, now that it is someone's."""
        try:
            await self._head.store.create(plan.version, plan.body)
        except Exists:
            there = await self._head.store.read(plan.version)
            return there is not None and txn_id_of(there) == plan.txn_id
        return True

    async def _accept(self, plan: Plan, began_s: float) -> bool:
        snapshot = plan.draft.freeze(plan.version, plan.timestamp)
        if not await self._head.accept(snapshot, len(plan.body), plan.hint, began_s):
            self._head.metrics.reloads.inc()
            return False
        metrics = self._head.metrics
        metrics.commits.inc()
        metrics.commit_bytes.inc(len(plan.body))
        metrics.transactions.inc(plan.writers)
        metrics.group_size.observe(plan.writers)
        metrics.version.set(plan.version)
        if plan is self._stuck:
            self._remember(plan)
        self._answer(plan, plan.version)
        self._won(plan)
        return True

    async def _unstick(self, batch: list[Transaction]) -> bool:
        """Find out what became of a number that was left in doubt; False when that still cannot be told."""
        plan = self._stuck
        assert plan is not None
        try:
            won = await self._create(plan, self._clock.boot_s())
        except Unavailable:
            won = None
        if won is None:
            for waiting in batch:
                self._head.metrics.unknowns.inc()
                waiting.answer(Unknown(plan.version)) if self._is_stuck(waiting) else waiting.fail(
                    _in_doubt(plan.version)
                )
            return False
        if not won:
            await self._head.catch_up()
        self._stuck = None
        return True

    def _is_stuck(self, waiting: Transaction) -> bool:
        return self._stuck is not None and any(one.txn_id == waiting.txn_id for one, _ in self._stuck.answers)

    def _without_known(self, batch: list[Transaction]) -> list[Transaction]:
        """Answer those whose earlier try has turned out to be committed."""
        fresh = []
        for waiting in batch:
            outcome = self._outcomes.get(waiting.txn_id) if self._outcomes else None
            if outcome is None:
                fresh.append(waiting)
            else:
                waiting.answer(outcome)
        return fresh

    def _remember(self, plan: Plan) -> None:
        for waiting, result in plan.results(plan.version):
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

    def _answer(self, plan: Plan, version: Version) -> None:
        for waiting, result in plan.results(version):
            waiting.answer(result)

    def _tell_unknown(self, plan: Plan) -> None:
        for waiting, _ in plan.answers:
            self._head.metrics.unknowns.inc()
            waiting.answer(Unknown(plan.version))

    def _give_up(self, batch: list[Transaction]) -> None:
        for waiting in batch:
            self._head.metrics.conflicts.inc()
            waiting.answer(Conflict(self._head.version))


def _in_doubt(version: Version) -> Unavailable:
    return Unavailable(f"version {version} is still in doubt and nothing can be committed after it", "Retry later")
