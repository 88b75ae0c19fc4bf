"""Members of groups as processes, and what must hold of everything they tell."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.clients.foreign.programs import NAMES, foreign_member

PATIENCE_S = 60.0


class Member:
    """A process of `group_member.py` and what it has told so far."""

    def __init__(self, **options: Any) -> None:
        self.events: list[tuple[float, str, Any]] = []
        self.owned: set[int] = set()
        self.committed: dict[int, int] = {}
        self.read: list[tuple[int, int]] = []
        command = _command(options)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._follow, daemon=True)
        self._reader.start()

    def leave(self) -> None:
        """Ask it to leave the group, and wait. When it has left is not told by all, so from here on it owns nothing."""
        assert self._process.stdin is not None
        self.events.append((time.monotonic(), "revoked", sorted(self.owned)))
        self._process.stdin.close()
        assert self._process.wait(PATIENCE_S) == 0
        self._reader.join(PATIENCE_S)
        self._owns_nothing()

    def kill(self) -> None:
        """Take it away without a word."""
        self._process.kill()
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        self._owns_nothing()

    @property
    def revoked(self) -> set[int]:
        """All it ever had to give up."""
        return {partition for _, event, some in list(self.events) if event == "revoked" for partition in some}

    @property
    def rebalances(self) -> int:
        return sum(1 for _, event, some in self.events if event == "assigned" and some)

    def _owns_nothing(self) -> None:
        self.events.append((time.monotonic(), "revoked", sorted(self.owned)))
        self.owned.clear()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            at_s, event, value = json.loads(line)
            if event == "assigned":
                self.owned |= set(value)
            elif event == "revoked":
                self.owned -= set(value)
            elif event == "read":
                self.read += [(partition, offset) for partition, offset in value]
            elif event == "committed":
                self.committed |= dict(value)
            self.events.append((at_s, event, value))


def _command(options: dict[str, Any]) -> list[str | Path]:
    if options["client"] not in NAMES:
        return [sys.executable, "-m", "tests.clients.group_member", json.dumps(options)]
    words = [options[name] or "" for name in ("bootstrap", "topic", "group", "protocol", "instance")]
    return [*foreign_member(options["client"]), *words[:2], "member", *words[2:]]


class Group:
    """Members with one topic and one group id; those that still run are killed at the end of a `with` block."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, client: str, protocol: str = "") -> None:
        self.id = f"group-{uuid.uuid4().hex[:8]}"
        self.topic, self.partitions = topic, partitions
        self.members: list[Member] = []
        self.running: list[Member] = []
        self._options = {"bootstrap": bootstrap, "client": client, "protocol": protocol}

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.running:
            member.kill()

    def join(self, count: int = 1, instance: str | None = None) -> Member:
        """Start members; the last of them."""
        for _ in range(count):
            member = Member(group=self.id, topic=self.topic, instance=instance, **self._options)
            self.members.append(member)
            self.running.append(member)
        return member

    def leave(self, member: Member) -> None:
        self.running.remove(member)
        member.leave()

    def kill(self, member: Member) -> None:
        self.running.remove(member)
        member.kill()

    def settle(self) -> None:
        """Until every partition has one owner and every member its share."""
        until(lambda: self._is_settled(), lambda: str([sorted(each.owned) for each in self.running]))

    def read_all(self, count: int) -> None:
        """Until `count` different records have been read by anybody."""
        until(lambda: len(self.seen()) >= count, lambda: f"{len(self.seen())} of {count} records were read")

    def commit_all(self, offset: int) -> None:
        """Until somebody has committed `offset` for every partition."""
        wanted = dict.fromkeys(range(self.partitions), offset)
        until(lambda: self.committed() == wanted, lambda: str(self.committed()))

    def committed(self) -> dict[int, int]:
        """The newest that members were told is committed."""
        told = [place for member in self.members for place in list(member.committed.items())]
        return {partition: max(offset for each, offset in told if each == partition) for partition, _ in told}

    def seen(self) -> set[tuple[int, int]]:
        return {place for member in self.members for place in list(member.read)}

    def share_crash_and_leave(self, *, cooperative: bool) -> None:
        """One member, then five; one crashes, the others leave: every partition is read and committed up to offset 10."""
        first = self.join()
        self.settle()
        doomed = self.join(4)
        self.settle()
        if cooperative:
            assert not set(first.owned) & first.revoked, "it never had to stop reading what it kept"
        self.read_all(60)
        self.commit_all(10)
        self.kill(doomed)
        self.settle()
        self.leave(first)
        self.settle()
        for member in list(self.running):
            self.leave(member)

    def check(self) -> None:
        """No partition ever had two owners, and no committed offset went back."""
        events = sorted(
            (at_s, number, event, value)
            for number, member in enumerate(self.members)
            for at_s, event, value in member.events
            if event in ("assigned", "revoked", "committed")
        )
        owners: dict[int, int] = {}
        committed: dict[int, int] = defaultdict(int)
        for _, number, event, value in events:
            if event == "committed":
                for partition, offset in value:
                    assert offset >= committed[partition], f"partition {partition} went back to {offset}"
                    committed[partition] = offset
                continue
            for partition in value:
                if event == "revoked":
                    if owners.get(partition) == number:
                        del owners[partition]
                else:
                    assert owners.get(partition, number) == number, f"partition {partition} has two owners"
                    owners[partition] = number

    def _is_settled(self) -> bool:
        shares = [set(member.owned) for member in self.running]
        sizes = [len(share) for share in shares]
        whole = sum(sizes) == self.partitions and set().union(*shares) == set(range(self.partitions))
        return whole and max(sizes) - min(sizes) <= 1


def until(holds: Callable[[], bool], state: Callable[[], str]) -> None:
    """Wait for something that processes of their own bring about."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s, state()
        threading.Event().wait(0.02)


def offsets_of(committed: Iterable[Any]) -> dict[int, int]:
    """What an administrator was told, by partition."""
    return {place.partition: place.offset for place in committed}
