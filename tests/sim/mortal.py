"""A nursery of processes that die: each opens a log, works on it, and is killed (-9) at a chosen system call.

`python -m tests.sim.mortal` reads one order a line (JSON) and forks a process for it, so that a death costs a fork and not a
start. The process tells what was acknowledged to it, and where it dies, on standard output; the nursery adds `end STATUS`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any

import msgspec

from lakebed.clock import FakeClock
from lakebed.config import ByteCount, KernelSettings
from lakebed.kernel import Add, CommitLog, Committed, Decision, FileLogStore, Put, View
from lakebed.kernel.journal import PAGE_BYTES
from lakebed.objects import Disk, Files, LocalStore
from tests.logs import PREFIX, JournalingDisk, open_log

Acknowledge = Callable[[str, int], None]

RETENTION_S = 60.0
STEPS = (
    "make_folder",
    "sync_folder",
    "open_anonymous",
    "open_new",
    "open_to_overwrite",
    "overwrite",
    "overwrite_page",
    "set_modified",
    "sync",
    "link_open",
    "rename",
    "unlink",
)


class Order(msgspec.Struct):
    """What a process is to do, and at which step it is to die: the one of that number, or of that label and number."""

    root: str
    name: str
    now_ms: int
    seed: int
    dies_at: int = -1
    label: str = ""
    journal_pages: int = 0


class DeadlyDisk(JournalingDisk):
    """The real calls, with a step before and after each, and one in the middle of every write."""

    def __init__(self, dies_at: int, label: str) -> None:
        self._dies_at, self._label = dies_at, label
        self._lock = Lock()
        self.steps: Counter[str] = Counter()

    def reach(self, label: str) -> None:
        with self._lock:
            reached = self.steps[label] if self._label else self.steps.total()
            if reached == self._dies_at and self._label in ("", label):
                tell(f"dies {label}")
                os.kill(os.getpid(), signal.SIGKILL)
                signal.pause()
            self.steps[label] += 1

    def write(self, fd: int, buffer: memoryview) -> int:
        self.reach("before write")
        half = super().write(fd, buffer[: (len(buffer) + 1) // 2])
        self.reach("amid write")
        if half < len(buffer):
            half += super().write(fd, buffer[half:])
        self.reach("after write")
        return half


def _deadly(name: str) -> Any:
    real = getattr(Disk, name)

    def step(self: DeadlyDisk, *args: Any) -> Any:
        self.reach(f"before {name}")
        result = real(self, *args)
        self.reach(f"after {name}")
        return result

    return step


for _name in STEPS:
    setattr(DeadlyDisk, _name, _deadly(_name))


async def live(order: Order) -> None:
    disk = DeadlyDisk(order.dies_at, order.label)
    await work(order, Files(Path(order.root), disk), lambda txn, version: tell(f"ack {txn} {version}"))
    tell(f"steps {msgspec.json.encode(disk.steps).decode()}")


async def work(order: Order, files: Files, acknowledge: Acknowledge) -> None:
    """Commits alone and in groups, checkpoints, a clean-up; every acknowledgement is told at once."""
    root, chance, clock = Path(order.root), Random(order.seed), FakeClock(order.now_ms)
    settings = KernelSettings(journal_bytes=ByteCount(order.journal_pages * PAGE_BYTES), journal_after=0)
    store = FileLogStore(root, PREFIX, LocalStore(root, files=files), files, settings=settings)
    log = await open_log(store, clock=clock, retention_s=RETENTION_S, checkpoint_every=4)
    try:
        for number in range(10):
            clock.suspend(chance.choice([2.0, 9.0, 25.0]))
            size = chance.choice([1, 1, 3])
            await asyncio.gather(*(commit(log, f"{order.name}.{number}.{at}", acknowledge) for at in range(size)))
            if chance.random() < 0.2:
                await log.checkpoint()
        if chance.random() < 0.6:
            await log.checkpoint()
            await log.clean_up()
    finally:
        await log.close()


async def commit(log: CommitLog, txn: str, acknowledge: Acknowledge) -> None:
    def decide(view: View) -> Decision[None]:
        stream = view.stream(1)
        start = stream.end if stream else 0
        add = Add(stream=1, offset_start=start, offset_end=start + 3, segment=txn, size=3)
        return Decision([Put.of(f"a/{txn}", 1), add, Put.of(f"b/{txn}", 1)], None)

    result = await log.commit(decide, txn_id=txn)
    if isinstance(result, Committed):
        acknowledge(txn, result.version)


def tell(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def main() -> None:
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=Order)
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(live(order))
            except BaseException as error:  # noqa: BLE001 a process of its own: its parent must hear of it
                tell(f"error {type(error).__name__} {error!s:.300}".replace("\n", " "))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        tell(f"end {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main()
