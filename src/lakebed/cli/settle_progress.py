"""What a settler tells, shown: bars on a terminal, JSON lines when asked for, log lines otherwise."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from lakebed.cli.options import Call
from lakebed.observe import Logs

if TYPE_CHECKING:
    from lakebed.pipeline import Event, Tell

_STATES = (
    "CREATED",
    "PARQUET_WRITTEN",
    "ICEBERG_COMMITTED",
    "DELTA_COMMITTED",
    "INDEX_SWAPPED",
    "WAL_GC_READY",
    "DONE",
)


@contextmanager
def listener(call: Call, logs: Logs, *, quiet: bool) -> Iterator[Tell]:
    """Someone who listens, in the way this call wants it."""
    if call.output.as_json:
        yield call.output.line
    elif not quiet and sys.stderr.isatty():
        with _Bars() as bars:
            yield bars.tell
    else:
        yield _Log(logs).tell


class _Bars:
    """One bar for every job that is under way."""

    def __init__(self) -> None:
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"), TimeElapsedColumn()
        self._progress = Progress(*columns, console=Console(stderr=True, highlight=False, markup=False))
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> _Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def tell(self, event: Event) -> None:
        if event.event in ("job", "state"):
            self._move(event)
        elif event.problem:
            self._progress.console.print(f"{event.topic}: {event.problem}. {event.remedy}")

    def _move(self, event: Event) -> None:
        task = self._tasks.get(event.job)
        if task is None:
            text = f"{event.topic} {event.kind}"
            task = self._tasks[event.job] = self._progress.add_task(text, total=len(_STATES) - 1, state="")
        state = event.state or _STATES[0]
        self._progress.update(task, completed=_STATES.index(state), state=state)


class _Log:
    """Ends of jobs and all trouble, as log lines."""

    def __init__(self, logs: Logs) -> None:
        self._logger = logs.logger("settle")

    def tell(self, event: Event) -> None:
        if event.event == "job":
            self._logger.info(
                "a job begins",
                topic=event.topic,
                kind=event.kind,
                job=event.job,
                files=event.files,
                size_bytes=event.bytes,
            )
        elif event.event == "state" and event.state == _STATES[-1]:
            self._logger.info("a job is done", topic=event.topic, kind=event.kind, job=event.job)
        elif event.event == "corrupt":
            self._logger.error("a partition cannot be settled", topic=event.topic, problem=event.problem)
        elif event.problem:
            self._logger.warning("settling is not as it should be", topic=event.topic, problem=event.problem)
