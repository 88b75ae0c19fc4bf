"""A commit log against a plain dict: random transactions, conflicts, lagging instances, reopening, clean-up, time travel."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lakebed.clock import FakeClock, unix_ms
from lakebed.errors import NotFound
from lakebed.kernel import (
    NO_VERSION,
    Add,
    CommitLog,
    Committed,
    Conflict,
    Decision,
    Delete,
    ForgetStreams,
    Operation,
    Put,
    Puts,
    Remove,
    Snapshot,
    Version,
    View,
    oldest_version,
    verify,
)
from lakebed.objects import MemoryStore
from tests.logs import REGISTRY, increment, object_store, open_log, state_bytes

RETENTION_S = 1000.0
keys = st.sampled_from([f"k{number}" for number in range(8)])
which = st.integers(0, 2)
edits = st.lists(st.tuples(keys, st.one_of(st.none(), st.integers(0, 9), st.text(max_size=3))), min_size=1, max_size=3)
Model = dict[str, tuple[Any, int]]


class LogAgainstDict(RuleBasedStateMachine):
    """`self.model` maps keys to values and the versions that wrote them; `self.past` keeps it for every version."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.objects = MemoryStore(self.clock)
        self.model: Model = {}
        self.ranges: list[tuple[int, int]] = []
        self.end = 0
        self.past: list[tuple[int, Model, list[tuple[int, int]]]] = []
        self.logs: list[CommitLog] = []
        self.count = 0

    @initialize(every=st.sampled_from([1, 3, 10]), compression=st.sampled_from(["none", "zstd"]))
    def start(self, every: int, compression: str) -> None:
        self.settings = {"checkpoint_every": every, "checkpoint_compression": compression, "retention_s": RETENTION_S}
        self.logs = [self.run(self.opened()) for _ in range(3)]
        self.remember(self.logs[0].current.timestamp)

    @rule(at=which, changes=edits)
    def commit(self, at: int, changes: list[tuple[str, Any]]) -> None:
        result = self.run(self.logs[at].commit(_edit(changes), txn_id=self.txn()))
        self.took(result, changes)

    @rule(at=which, key=keys, value=st.integers(), knows=st.sampled_from(["now", "before", "absent", "ahead"]))
    def commit_expecting(self, at: int, key: str, value: int, knows: str) -> None:
        actual = self.model[key][1] if key in self.model else NO_VERSION
        expected = {
            "now": actual,
            "before": max(actual - 1, NO_VERSION),
            "absent": NO_VERSION,
            "ahead": len(self.past) - 1,
        }[knows]
        result = self.run(self.logs[at].commit(_edit([(key, value)]), txn_id=self.txn(), expected={key: expected}))
        fine = actual == NO_VERSION if expected < 0 else 0 <= actual <= expected
        assert isinstance(result, Committed if fine else Conflict)
        if fine:
            self.took(result, [(key, value)])
        elif actual >= 0:
            assert (result.version, result.key) == (actual, key)

    @rule(at=which, groups=st.lists(edits, min_size=2, max_size=5))
    def commit_together(self, at: int, groups: list[list[tuple[str, Any]]]) -> None:
        async def all_at_once() -> list[Any]:
            return await asyncio.gather(*(self.logs[at].commit(_edit(each), txn_id=self.txn()) for each in groups))

        results = self.run(all_at_once())
        for version in sorted({result.version for result in results}):
            stamps = {result.timestamp for result in results if result.version == version}
            assert len(stamps) == 1
            for result, changes in zip(results, groups, strict=True):
                if result.version == version:
                    self.apply(changes, version)
            self.remember(stamps.pop())
            assert len(self.past) - 1 == version

    @rule(at=which, size=st.integers(1, 3))
    def append(self, at: int, size: int) -> None:
        def decide(view: View) -> Decision[None]:
            stream = view.stream(1)
            start = stream.end if stream else 0
            return Decision([_add(start, start + size)], None)

        result = self.run(self.logs[at].commit(decide, txn_id=self.txn()))
        self.ranges.append((self.end, self.end + size))
        self.end += size
        self.took(result, [])

    @precondition(lambda self: len(self.ranges) > 1)
    @rule(at=which, cut=st.booleans())
    def settle_or_cut(self, at: int, cut: bool) -> None:
        first, last = self.ranges[0], self.ranges[len(self.ranges) // 2 - (1 if cut else 0)]
        operations: list[Operation] = [Remove(stream=1, offset_start=first[0], offset_end=last[1])]
        if not cut:
            operations.append(_add(first[0], last[1]))
        result = self.run(self.logs[at].commit(lambda _: Decision(operations, None), txn_id=self.txn()))
        kept = [each for each in self.ranges if each[0] >= last[1]]
        self.ranges = kept if cut else [(first[0], last[1]), *kept]
        self.took(result, [])

    @precondition(lambda self: self.ranges)
    @rule(at=which)
    def forget_stream(self, at: int) -> None:
        gone = Remove(stream=1, offset_start=self.ranges[0][0], offset_end=self.end)
        forget = ForgetStreams(streams=[1])
        result = self.run(self.logs[at].commit(lambda _: Decision([gone, forget], None), txn_id=self.txn()))
        self.ranges, self.end = [], 0
        self.took(result, [])
        assert self.logs[at].current.stream(1) is None

    @rule(at=which, key=keys)
    def read(self, at: int, key: str) -> None:
        def decide(view: View) -> Decision[Any]:
            entry = view.get(key)
            return Decision((), None if entry is None else (entry.decode(object), entry.version))

        result = self.run(self.logs[at].commit(decide, txn_id=self.txn()))
        assert (result.answer, result.version) == (self.model.get(key), len(self.past) - 1)

    @rule(at=which)
    def reopen(self, at: int) -> None:
        self.run(self.logs[at].close())
        self.logs[at] = self.run(self.opened())
        self.same(self.logs[at].current, len(self.past) - 1)

    @rule(at=which)
    def checkpoint(self, at: int) -> None:
        assert self.run(self.logs[at].checkpoint()) == len(self.past) - 1

    @rule(part=st.sampled_from([0.001, 0.1, 0.3, 1.1]))
    def pass_time(self, part: float) -> None:
        self.clock.suspend(part * RETENTION_S)

    @rule(at=which)
    def clean_up(self, at: int) -> None:
        done = self.run(self.logs[at].clean_up())
        if done.floor:
            floor = self.logs[at].current.get("kernel/floor")
            assert floor is not None
            self.remember(self.logs[at].current.timestamp)
            limit_ms = self.clock.now_ms() - RETENTION_S * 1000
            oldest = oldest_version(self.logs[at].current)
            assert oldest == 0 or self.past[oldest][0] <= limit_ms

    @rule(at=which, back=st.integers(0, 40))
    def look_back(self, at: int, back: int) -> None:
        version = max(0, len(self.past) - 1 - back)
        if version < oldest_version(self.run(self.logs[at].refresh())):
            try:
                self.run(self.logs[at].snapshot(Version(version)))
            except NotFound:
                return
            raise AssertionError(f"{version} should be gone")
        self.same(self.run(self.logs[at].snapshot(Version(version))), version)
        late_ms = self.past[version][0]
        assert self.run(self.logs[at].snapshot(at_ms=late_ms)).version == version

    @invariant()
    def instances_know_only_what_happened(self) -> None:
        for log in self.logs:
            self.same(log.current, log.current.version)

    def teardown(self) -> None:
        if self.logs:
            for log in self.logs:
                self.run(log.refresh())
            assert len({state_bytes(log.current) for log in self.logs}) == 1
            findings = self.run(verify(object_store(self.objects, self.clock), REGISTRY)).findings
            assert all(finding.severity == "note" for finding in findings), findings
            self.run(self.logs[0].commit(increment("last"), txn_id="last"))
        for log in self.logs:
            self.run(log.close())
        self.loop.close()

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    async def opened(self) -> CommitLog:
        return await open_log(object_store(self.objects, self.clock), clock=self.clock, **self.settings)

    def txn(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def took(self, result: Any, changes: list[tuple[str, Any]]) -> None:
        assert isinstance(result, Committed)
        assert result.version == len(self.past)
        self.apply(changes, result.version)
        self.remember(result.timestamp)

    def apply(self, changes: list[tuple[str, Any]], version: int) -> None:
        for key, value in changes:
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = (value, version)

    def remember(self, timestamp: str) -> None:
        moment = unix_ms(timestamp)
        assert not self.past or moment > self.past[-1][0]
        self.past.append((moment, dict(self.model), list(self.ranges)))

    def same(self, snapshot: Snapshot, version: int) -> None:
        _, model, ranges = self.past[version]
        assert snapshot.version == version
        found = {key: (entry.decode(object), entry.version) for key, entry in snapshot.scan("k0", "k9")}
        assert found == model
        stream = snapshot.stream(1)
        assert ([(e.offset_start, e.offset_end) for e in stream.entries()] if stream else []) == ranges


def _edit(changes: list[tuple[str, Any]]) -> Any:
    """As one operation for each key, or one for all of them where all get a value."""

    def decide(_: View) -> Decision[None]:
        if len(changes) > 1 and all(value is not None for _, value in changes):
            return Decision([Puts.of({key: msgspec.json.encode(value) for key, value in changes})], None)
        return Decision([Delete(key=key) if value is None else Put.of(key, value) for key, value in changes], None)

    return decide


def _add(start: int, end: int) -> Add:
    return Add(stream=1, offset_start=start, offset_end=end, segment=f"s{start}", size=end - start)


SOAK = os.environ.get("LAKEBED_SOAK") == "1"
pytestmark = [pytest.mark.slow] if SOAK else []
TestLogAgainstDict = LogAgainstDict.TestCase
TestLogAgainstDict.settings = settings(
    max_examples=2000 if SOAK else 60, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
