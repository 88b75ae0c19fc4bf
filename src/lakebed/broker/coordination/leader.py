"""The leader of one slot: commits the steps of its coordinator in order, runs their effects, and rings its timers.

Steps that only store offsets go with those of other slots; a step of another kind first closes what they go with.

Invariant: nothing is answered that is not committed, and nothing is decided once the lease is not surely held. Whatever
wakes up late is refused by the fence in the log. An answer may bring its connection's next request at once: whatever that
leads to comes after the timers of the step that was answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Protocol, TypeAlias, TypeVar

from lakebed.broker.coordination.alarm import met
from lakebed.broker.coordination.gathering import Gathering
from lakebed.broker.coordination.group_metrics import GroupMetrics
from lakebed.broker.coordination.refusals import Loading, NotCoordinator
from lakebed.broker.coordination.reply import Reply
from lakebed.clock import Clock, within
from lakebed.errors import Closed, Fenced, LakebedError, Unavailable
from lakebed.groups import Again, Answer, Coordinator, Effect, Fence, Step, TimerKind, Timers
from lakebed.kernel import CommitLog, CommitResult, Committed, View
from lakebed.objects import Lease
from lakebed.observe import Logger

T = TypeVar("T")
Make: TypeAlias = Callable[[Coordinator, int], Step]
"""A request as a step of the coordinator, under the ticket it is given."""


class Waiting(Protocol):
    """Who waits for the answer to a request."""

    def set_result(self, value: Any, /) -> None: ...
    def set_exception(self, error: LakebedError, /) -> None: ...


_RELOAD_PAUSE_S = 0.2
_LAST_COMMITS_S = 5.0
_GROUPS_AT_ONCE = 100
_MOMENT_S = 0.01
"""A heartbeat may wait so long: were it told that all is well, its member would hear otherwise only with its next."""


class SlotLeader:
    """Leads a slot from `take_over` until `stop`, `give_up`, or the end of its lease."""

    def __init__(
        self,
        coordinator: Coordinator,
        fence: Fence,
        lease: Lease,
        log: CommitLog,
        gathering: Gathering,
        clock: Clock,
        logger: Logger,
        metrics: GroupMetrics,
    ) -> None:
        self.lease = lease
        self._coordinator, self._fence, self._gathering = coordinator, fence, gathering
        self._log, self._clock, self._logger, self._metrics = log, clock, logger, metrics
        self._loop = asyncio.get_running_loop()
        self._numbers = count(1)
        self._waiting: dict[int, Waiting] = {}
        self._reloads: set[asyncio.Task[None]] = set()
        self._under_way = 0
        self._quiet = asyncio.Event()
        self._timers = Timers()
        self._unkept: Sequence[Effect] = ()
        self._unkept_s = 0.0
        self._keeps_time_soon = False
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_s = 0.0
        self._held: list[tuple[Make, Reply]] = []
        """Heartbeats that are judged again when the alarm has rung."""
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
        return len(self._timers) > 0 or bool(self._unkept)

    async def take_over(self) -> None:
        """Load the slot's groups. The fence must be committed before."""
        for number, step in enumerate(self._coordinator.take_over(), 1):
            self._perform(step)
            if number % _GROUPS_AT_ONCE == 0:
                await self._clock.sleep(0)
        self._loaded = True

    async def ask(self, make: Make) -> Any:
        """The answer to a request, when it comes."""
        return await self.submit(make).wait()

    def submit(self, make: Make) -> Reply:
        """The same without a task. Whoever stops waiting cancels the reply. Ask `Slots.leader` for the leader just before."""
        if self._over or not self._loaded:
            self._check()
        ticket = next(self._numbers)
        try:
            step = make(self._coordinator, ticket)
        except Unavailable as error:
            raise Loading(error.problem, error.remedy) from error
        reply = self._waiting[ticket] = Reply(partial(self._waiting.pop, ticket, None))
        if step.gathered:
            self._gathering.requests += 1
        else:
            self._perform(step)
        return reply

    def submit_beat(self, make: Make, group_id: str) -> Reply:
        """The same for a heartbeat, which renews its session at once. If all is well, but a session of its group is about to
        end, it is judged again when that has ended, and answered then."""
        reply = self.submit(make)
        if not self._ends_soon(group_id) or not reply.done() or reply.result().error_code:
            return reply
        held = Reply()
        self._held.append((make, held))
        return held

    def submit_again(self, again: Again, waiting: Waiting) -> bool:
        """Commit the same places of a group again, and tell `waiting`. False: they have to be asked for by `submit`."""
        if self._over or not self._loaded or not self.lease.alive():
            return False
        ticket = next(self._numbers)
        step = self._coordinator.commit_again(again, ticket)
        if step is None:
            return False
        self._waiting[ticket] = waiting
        if step.gathered:
            self._gathering.requests += len(again.repeats)
        else:
            self._perform(step)
        return True

    def hurry(self) -> None:
        """Nobody else is expected to commit offsets soon."""
        self._gathering.hurry()

    def look(self, see: Callable[[Coordinator, View], T]) -> T:
        """What `see` finds, now; it changes nothing."""
        self._check()
        try:
            return see(self._coordinator, self._log.current)
        except Unavailable as error:
            raise Loading(error.problem, error.remedy) from error

    def census(self) -> Iterable[tuple[str, int]]:
        """State and number of members of every group that has any, as long as the slot is led."""
        return self._coordinator.census() if self.leads else ()

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
        self._gathering.close()
        if self._under_way:
            self._quiet.clear()
            with suppress(TimeoutError):
                await within(_LAST_COMMITS_S, self._quiet.wait())
        self.give_up()

    def give_up(self) -> None:
        """The slot is another's: tell everyone who waits."""
        self._over = True
        if self._alarm is not None:
            self._alarm.cancel()
        self._loop.call_soon(self._judge_held)
        self._refuse(self._coordinator.give_up(), _not_coordinator())
        self._refuse(list(self._waiting), _not_coordinator())

    def committed(self, steps: Sequence[Step]) -> None:
        """Steps are in the log: what follows from them may happen."""
        self._landed(len(steps))
        for step in steps:
            self._run(self._coordinator.settle(step))
        self._count(steps)

    def failed(self, steps: Sequence[Step], error: LakebedError) -> None:
        """Nobody knows the groups any more: refuse their requests, and load them again. Or the slot is lost."""
        self._landed(len(steps))
        if isinstance(error, (Fenced, Closed)):
            self.give_up()
            return
        group_ids = dict.fromkeys(step.group_id for step in steps)
        self._logger.warning("groups are loaded again", groups=list(group_ids), error=str(error))
        for step in steps:
            self._refuse(self._coordinator.fail(step), Unavailable(error.problem, "Retry"))
        self._keep_time()
        for group_id in group_ids:
            self._timers.drop_group(group_id)
        self._gathering.close()
        task = self._loop.create_task(self._reload(group_ids))
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    def _check(self) -> None:
        if not self.leads:
            raise _not_coordinator()
        if not self._loaded:
            raise Loading("the groups of this slot are being loaded", "Retry in a moment")

    def _perform(self, step: Step) -> None:
        """Commit a step in its turn: the log decides in the order of submission."""
        if not step.commits:
            if step.rebalances:
                self._metrics.rebalances.total += step.rebalances
            self._run(self._coordinator.settle(step))
            return
        self._under_way += 1
        if step.is_plain:
            self._gathering.add(self, step)
        else:
            self._gathering.close()
            self._submit(step)

    def _submit(self, step: Step) -> None:
        txn_id = f"{self._fence.resource}:{self._fence.token}:{next(self._numbers)}"
        try:
            result = self._log.submit(step.decide, txn_id=txn_id)
        except LakebedError as error:
            self.failed([step], error)
        else:
            result.add_done_callback(partial(self._ended, step))

    def _ended(self, step: Step, outcome: asyncio.Future[CommitResult[Any]]) -> None:
        error = outcome.exception()
        if error is not None and not isinstance(error, LakebedError):
            raise error
        if error is not None:
            self.failed([step], error)
        elif isinstance(result := outcome.result(), Committed):
            self.committed([step])
        else:
            self.failed([step], Unavailable(f"a step of group {step.group_id} came to {result}", "Retry"))

    def _landed(self, count: int) -> None:
        self._under_way -= count
        if not self._under_way:
            self._quiet.set()

    def _count(self, steps: Sequence[Step]) -> None:
        metrics = self._metrics
        for step in steps:
            metrics.commits.total += step.requests
            metrics.rebalances.total += step.rebalances
            if step.is_plain:
                metrics.offsets.total += len(step.changes)

    async def _reload(self, group_ids: Iterable[str]) -> None:
        """Load groups as they have come to be, once the fate of all that was submitted for them is known."""
        while not self._over:
            try:
                await self._log.refresh()
            except Unavailable:
                await self._clock.sleep(_RELOAD_PAUSE_S)
            except LakebedError:
                self.give_up()
            else:
                for group_id in group_ids:
                    self._perform(self._coordinator.reload(group_id))
                return

    def _run(self, effects: Sequence[Effect]) -> None:
        """Give the answers of effects; their timers are set a moment later, but before any that come after them."""
        if not effects:
            return
        self._keep_time()
        self._unkept, self._unkept_s = effects, self._clock.monotonic_s()
        if not self._keeps_time_soon:
            self._keeps_time_soon = True
            self._loop.call_soon(self._keep_time_now)
        for effect in effects:
            if type(effect) is Answer:
                reply = self._waiting.pop(effect.ticket, None)
                if reply is not None:
                    self._give(reply, effect.response)

    def _keep_time_now(self) -> None:
        self._keeps_time_soon = False
        self._keep_time()

    def _keep_time(self) -> None:
        effects, self._unkept = self._unkept, ()
        if not effects:
            return
        self._timers.follow(effects, self._unkept_s)
        self._set_alarm()

    def _give(self, reply: Waiting, response: Any) -> None:
        try:
            reply.set_result(response)
        except Exception as error:  # the trouble of one connection is not that of the next
            self._logger.error("an answer could not be given", error=str(error), exc_info=error)

    def _refuse(self, tickets: Iterable[int], error: LakebedError) -> None:
        """Soon: what the refusals bring about must not come between the steps of whoever refuses."""
        for ticket in tickets:
            reply = self._waiting.pop(ticket, None)
            if reply is not None:
                self._loop.call_soon(reply.set_exception, error)

    def _set_alarm(self) -> None:
        if self._alarm is not None and not self._timers.due_within(self._alarm_s):
            return
        due_s = self._timers.next_due()
        if due_s is None or self._over:
            return
        if self._alarm is not None:
            if self._alarm_s <= due_s:
                return
            self._alarm.cancel()
        self._alarm_s = due_s
        self._alarm = self._loop.create_task(self._ring(due_s), name=f"alarm {self._fence.resource}")

    async def _ring(self, due_s: float) -> None:
        await met(self._clock, due_s, lambda: self._timers.next_due() == due_s)
        self._alarm = None
        self._keep_time()
        if self.leads:
            for timer in self._timers.take_due(self._clock.monotonic_s()):
                self._perform(self._coordinator.fired(timer))
            self._set_alarm()
        self._judge_held()

    def _ends_soon(self, group_id: str) -> bool:
        """Whether what fires next, and within a moment, is the session of a member of the group."""
        soon_s = self._clock.monotonic_s() + _MOMENT_S
        if self._alarm is None or self._alarm_s > soon_s:
            return False
        self._keep_time()
        timer = self._timers.first_within(soon_s)
        return timer is not None and timer.kind is TimerKind.SESSION and timer.group_id == group_id

    def _judge_held(self) -> None:
        held, self._held = self._held, []
        for make, reply in held:
            try:
                self.submit(make).add_done_callback(partial(self._pass_on, reply))
            except LakebedError as error:
                reply.set_exception(error)

    def _pass_on(self, held: Reply, judged: Reply) -> None:
        try:
            self._give(held, judged.result())
        except LakebedError as error:
            held.set_exception(error)


def _not_coordinator() -> NotCoordinator:
    return NotCoordinator("this broker does not lead the group's slot", "Ask FindCoordinator")
