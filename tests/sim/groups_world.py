"""A world in which groups live: a network that delays and loses, coordinators that crash, sleep and are taken over, one log.

Everything that happens follows from the seed. `LAKEBED_SIM_SEED=<n>` runs that one seed alone.
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from heapq import heappop, heappush
from typing import Any

import pytest

from lakebed.clock import FakeClock
from lakebed.errors import Conflict, Fenced, Unavailable
from lakebed.groups import (
    Answer,
    Arm,
    Caller,
    Coordinator,
    Effect,
    Fence,
    GroupSettings,
    Renew,
    Step,
    Timers,
    Topics,
    decode_offset,
    load_group,
    slot_resource,
)
from tests.unit.groups.shell import DictLog, catalog

REQUEST_TIMEOUT_MS = 4_000
"""Longer than a request and its answer may take on the way, as on one connection: what has not come by then never comes."""


def seeds(count: int) -> list[int]:
    chosen = os.environ.get("LAKEBED_SIM_SEED")
    return [int(chosen)] if chosen else list(range(count))


class Holder:
    """One process that leads the slot, until it does not."""

    def __init__(self, world: World, token: int) -> None:
        self.world = world
        self.timers = Timers()
        self.in_flight: deque[Step | Callable[[], None]] = deque()
        self.waiting: dict[int, Callable[[Any], None]] = {}
        self.coordinator = Coordinator(
            0,
            1,
            Fence(slot_resource(0), token),
            clock=world.clock,
            view=lambda: world.log,
            topics=lambda: world.topics,
            settings=world.settings,
        )
        for step in self.coordinator.take_over():
            self.perform(step)

    def perform(self, step: Step) -> None:
        if step.commits:
            self.in_flight.append(step)
        else:
            self.run(self.coordinator.settle(step))

    def commit_next(self) -> None:
        step = self.in_flight.popleft()
        if not isinstance(step, Step):
            step()
            return
        try:
            self.world.apply(step)
        except Conflict:
            self.failed(step)
        else:
            self.run(self.coordinator.settle(step))

    def failed(self, step: Step) -> None:
        """What a shell does when it does not know, or knows that it was not."""
        for ticket in self.coordinator.fail(step):
            self.answer(ticket, None)
        self.timers.drop_group(step.group_id)
        self.in_flight.append(lambda: self.perform(self.coordinator.reload(step.group_id)))

    def fire_due(self) -> None:
        for timer in self.timers.take_due(self.world.now_ms):
            self.perform(self.coordinator.fired(timer))

    def run(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Answer):
                self.answer(effect.ticket, effect.response)
            elif isinstance(effect, Arm):
                self.timers.arm(effect.timer, self.world.now_ms + effect.delay_ms)
            elif isinstance(effect, Renew):
                self.run(effect.arms)
            else:
                self.timers.cancel(effect.timer)

    def answer(self, ticket: int, response: Any) -> None:
        callback = self.waiting.pop(ticket, None)
        if callback is not None:
            callback(response)


class World:
    """Time, chance, the network and the log."""

    def __init__(self, seed: int, *, faults: float = 1.0) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.faults = faults
        self.commit_rate = self.chance.choice([0.1, 0.3, 0.7])
        self.settings = GroupSettings(
            session_timeout_min_ms=1,
            initial_rebalance_delay_ms=500,
            consumer_session_timeout_ms=9_000,
        )
        self.log = DictLog()
        self.clock = FakeClock(seed=seed)
        self.topics: Topics = catalog(1, a=3, b=4)
        self.now_ms = 0
        self.token = 0
        self.tickets = 0
        self.order = 0
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.sleepers: list[Holder] = []
        self.holder: Holder | None = None
        self.checks: list[Callable[[], None]] = []
        self.counts = {"crash": 0, "pause": 0, "unknown": 0, "fenced": 0, "commit": 0}
        self.take_over()

    def take_over(self) -> None:
        self.token += 1
        self.log.take_fence(self.token)
        self.holder = Holder(self, self.token)

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.order += 1
        heappush(self.events, (self.now_ms + delay_ms, self.order, action))

    def maybe(self, probability: float) -> bool:
        return self.chance.random() < probability * self.faults

    def delay_ms(self) -> int:
        slow = self.maybe(0.1)
        return self.chance.randrange(1, 1_500 if slow else 50)

    def send(self, ask: Callable[[Coordinator, Caller], Step], done: Callable[[Any], None], version: int) -> None:
        """Ask the coordinator; `done` hears the answer once, or None when it is lost or took too long."""
        open_ = [True]

        def hear(response: Any) -> None:
            if open_:
                open_.clear()
                done(response)

        def deliver() -> None:
            if self.holder is None:
                return
            self.tickets += 1
            holder, ticket = self.holder, self.tickets
            holder.waiting[ticket] = lambda response: (
                None if self.maybe(0.03) else self.after(self.delay_ms(), lambda: hear(response))
            )
            try:
                holder.perform(ask(holder.coordinator, Caller(ticket, version, "client", "/127.0.0.1")))
            except Unavailable:
                holder.answer(ticket, None)

        if not self.maybe(0.03):
            self.after(self.delay_ms(), deliver)
        self.after(REQUEST_TIMEOUT_MS, lambda: hear(None))

    def apply(self, step: Step) -> None:
        """Commit, and look at every invariant of the log."""
        before = {key: body for key, body in self.log.dump().items() if "/o/" in key}
        groups = {name: load_group(self.log, name) for name in ("g",)}
        self.log.commit(step)
        self.counts["commit"] += 1
        for key, body in self.log.dump().items():
            if key in before:
                assert decode_offset(body).offset >= decode_offset(before[key]).offset, f"{key} went back"
        for name, old in groups.items():
            new = load_group(self.log, name)
            if old is not None and new is not None and type(old) is type(new):
                self._check_growth(old, new)
        for check in self.checks:
            check()

    def _check_growth(self, old: Any, new: Any) -> None:
        if hasattr(old, "generation"):
            assert new.generation >= old.generation
            return
        assert (new.epoch, new.target_epoch) >= (old.epoch, old.target_epoch)
        for member_id in set(old.members) & set(new.members):
            was, now = old.members[member_id].epoch, new.members[member_id].epoch
            assert now >= was or now == -2 or was == -2

    def step(self) -> None:
        """Let the next thing happen."""
        holder = self.holder
        if holder is not None and holder.in_flight and (self.chance.random() < self.commit_rate or not self.events):
            if isinstance(holder.in_flight[0], Step) and self.maybe(0.01):
                self._lose_track(holder, holder.in_flight[0])
            else:
                holder.commit_next()
            return
        self._advance()
        if self.holder is not None and self.maybe(0.004):
            self._lose_holder(self.holder)
        if self.sleepers and self.holder is not None and self.maybe(0.02):
            self._wake()

    def _advance(self) -> None:
        due = [self.events[0][0]] if self.events else [self.now_ms + 100]
        if self.holder is not None and (armed := self.holder.timers.next_due()) is not None:
            due.append(int(armed))
        target = max(self.now_ms, min(due))
        self.clock.suspend((target - self.now_ms) / 1000)
        self.now_ms = target
        if self.holder is not None:
            self.holder.fire_due()
        while self.events and self.events[0][0] <= self.now_ms:
            heappop(self.events)[2]()

    def _lose_track(self, holder: Holder, step: Step) -> None:
        """A commit whose fate its writer does not learn: it may have landed."""
        self.counts["unknown"] += 1
        holder.in_flight.popleft()
        if self.chance.random() < 0.5:
            with suppress(Conflict):
                self.apply(step)
        holder.failed(step)

    def _lose_holder(self, holder: Holder) -> None:
        """It crashes or falls asleep; what it had in flight lands up to some point."""
        steps = [step for step in holder.in_flight if isinstance(step, Step)]
        landing = steps[: self.chance.randrange(len(steps) + 1)]
        for step in landing:
            with suppress(Conflict):
                self.apply(step)
        holder.in_flight = deque(steps[len(landing) :])
        if self.chance.random() < 0.5:
            self.counts["pause"] += 1
            self.sleepers.append(holder)
        else:
            self.counts["crash"] += 1
        self.holder = None
        self.after(self.chance.randrange(1, 2_000), self.take_over)

    def _wake(self) -> None:
        """A sleeper goes on as if nothing had happened, and finds that it may not."""
        sleeper = self.sleepers.pop(0)
        sleeper.waiting.clear()
        sleeper.fire_due()
        before = self.log.dump()
        for step in (each for each in sleeper.in_flight if isinstance(each, Step)):
            with pytest.raises(Fenced):
                self.log.commit(step)
            self.counts["fenced"] += 1
        assert self.log.dump() == before
