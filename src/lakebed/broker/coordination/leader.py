"""The leader of one slot: commits the steps of its coordinator in order, runs their effects, and rings its timers.

Invariant: nothing is answered that is not committed, and nothing is decided once the lease is not surely held. Whatever
wakes up late is refused by the fence in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, TypeAlias, TypeVar

from lakebed.broker.coordination.refusals import Loading, NotCoordinator
from lakebed.clock import Clock
from lakebed.errors import Closed, Fenced, LakebedError, Unavailable
from lakebed.groups import Answer, Arm, Coordinator, Effect, Fence, Step, Timers
from lakebed.kernel import CommitLog, Committed, View
from lakebed.objects import Lease
from lakebed.observe import Logger

T = TypeVar("T")
Make: TypeAlias = Callable[[Coordinator, int], Step]
"""A request as a step of the coordinator, under the ticket it is given."""

_RELOAD_PAUSE_S = 0.2
_LAST_COMMITS_S = 5.0
_GROUPS_AT_ONCE = 100


class SlotLeader:
    """Leads a slot from `take_over` until `stop`, `give_up`, or the end of its lease."""

    def __init__(
        self, coordinator: Coordinator, fence: Fence, lease: Lease, log: CommitLog, clock: Clock, logger: Logger
    ) -> None:
        self.lease = lease
        self._coordinator, self._fence = coordinator, fence
        self._log, self._clock, self._logger = log, clock, logger
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers = Timers()
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_s = 0.0
        self._loaded = self._over = False

    @property
    def leads(self) -> bool:
        """Whether it may act."""
        return not self._over and self.lease.alive()

    @property
    def over(self) -> bool:
        """Whether it has stopped for good, though its lease may live on."""
        return self._over

    @property
    def has_members(self) -> bool:
        """Whether anybody is in any of its groups."""
        return len(self._timers) > 0

    async def take_over(self) -> None:
        """Load the slot's groups. The fence must be committed before."""
        for number, step in enumerate(self._coordinator.take_over(), 1):
            self._perform(step)
            if number % _GROUPS_AT_ONCE == 0:
                await self._clock.sleep(0)
        self._loaded = True

    async def ask(self, make: Make) -> Any:
        """The answer to a request, when it comes. Whoever stops waiting is forgotten."""
        self._check()
        ticket = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = answer
        try:
            self._perform(self._made(lambda: make(self._coordinator, ticket)))
            return await answer
        finally:
            self._waiting.pop(ticket, None)

    def look(self, see: Callable[[Coordinator, View], T]) -> T:
        """What `see` finds, now; it changes nothing."""
        self._check()
        return self._made(lambda: see(self._coordinator, self._log.current))

    async def sweep(self, chores: Callable[[Coordinator, View, str], Iterable[Step]]) -> None:
        """Do `chores` for every group, a few at a time."""
        view = self._log.current
        for number, group_id in enumerate(self._coordinator.group_ids(), 1):
            if not self.leads:
                return
            try:
                for step in chores(self._coordinator, view, group_id):
                    self._perform(step)
            except Unavailable:
                continue  # it is being loaded again; the next round finds it
            if number % _GROUPS_AT_ONCE == 0:
                await self._clock.sleep(0)

    async def stop(self) -> None:
        """Take no more, let commits under way end, refuse whoever still waits."""
        self._over = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST_COMMITS_S)
        self.give_up()

    def give_up(self) -> None:
        """The slot is another's: tell everyone who waits."""
        self._over = True
        if self._alarm is not None:
            self._alarm.cancel()
        self._refuse(self._coordinator.give_up(), _not_coordinator())
        self._refuse(list(self._waiting), _not_coordinator())

    def _check(self) -> None:
        if not self.leads:
            raise _not_coordinator()
        if not self._loaded:
            raise Loading("the groups of this slot are being loaded", "Retry in a moment")

    def _made(self, make: Callable[[], T]) -> T:
        try:
            return make()
        except Unavailable as error:
            raise Loading(error.problem, error.remedy) from error

    def _perform(self, step: Step) -> None:
        """Commit a step in its turn; tasks start in the order they are made, and so are submitted in it."""
        if not step.commits:
            self._run(self._coordinator.settle(step))
            return
        txn_id = f"{self._fence.resource}:{self._fence.token}:{next(self._numbers)}"
        self._start(self._commit(step, txn_id))

    async def _commit(self, step: Step, txn_id: str) -> None:
        try:
            result = await self._log.commit(step.decide, txn_id=txn_id)
        except (Fenced, Closed):
            self.give_up()
            return
        except LakebedError as error:
            await self._fail(step, error)
            return
        if isinstance(result, Committed):
            self._run(self._coordinator.settle(step))
        else:
            await self._fail(step, Unavailable(f"a step of group {step.group_id} came to {result}", "Retry"))

    async def _fail(self, step: Step, error: LakebedError) -> None:
        """Nobody knows the group any more: refuse its requests, then load it as it has come to be."""
        self._logger.warning("a group is loaded again", group=step.group_id, error=str(error))
        self._refuse(self._coordinator.fail(step), Unavailable(error.problem, "Retry"))
        self._timers.drop_group(step.group_id)
        await self._clock.sleep(0)  # what was performed in this turn of the loop must be submitted before the refresh
        while not self._over:
            try:
                await self._log.refresh()
            except Unavailable:
                await self._clock.sleep(_RELOAD_PAUSE_S)
            except LakebedError:
                self.give_up()
            else:
                self._perform(self._coordinator.reload(step.group_id))
                return

    def _run(self, effects: Iterable[Effect]) -> None:
        now_s = self._clock.monotonic_s()
        for effect in effects:
            if isinstance(effect, Answer):
                answer = self._waiting.pop(effect.ticket, None)
                if answer is not None and not answer.done():
                    answer.set_result(effect.response)
            elif isinstance(effect, Arm):
                self._timers.arm(effect.timer, now_s + effect.delay_ms / 1000)
            else:
                self._timers.cancel(effect.timer)
        self._set_alarm()

    def _refuse(self, tickets: Iterable[int], error: LakebedError) -> None:
        for ticket in tickets:
            answer = self._waiting.pop(ticket, None)
            if answer is not None and not answer.done():
                answer.set_exception(error)

    def _set_alarm(self) -> None:
        due_s = self._timers.next_due()
        if due_s is None or self._over:
            return
        if self._alarm is not None:
            if self._alarm_s <= due_s:
                return
            self._alarm.cancel()
        self._alarm_s = due_s
        self._alarm = asyncio.get_running_loop().create_task(self._ring(due_s), name=f"alarm {self._fence.resource}")

    async def _ring(self, due_s: float) -> None:
        await self._clock.sleep(max(0.0, due_s - self._clock.monotonic_s()))
        self._alarm = None
        if self.leads:
            for timer in self._timers.take_due(self._clock.monotonic_s()):
                self._perform(self._coordinator.fired(timer))
            self._set_alarm()

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _not_coordinator() -> NotCoordinator:
    return NotCoordinator("this broker does not lead the group's slot", "Ask FindCoordinator")
