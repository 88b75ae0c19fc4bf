"""Structured logs: one event a line, for a person or as JSON, on standard error.

An event is a short constant text with facts beside it: `log.info("checkpoint written", version=120, size_bytes=9000)`.
Facts bound by `correlated` are on every event below it, across awaits and tasks.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TextIO

import structlog
from structlog.contextvars import bound_contextvars, merge_contextvars
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

from lakebed.clock import Clock, SystemClock, iso_timestamp
from lakebed.observe.redact import redacted

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["human", "json"]
Logger = FilteringBoundLogger

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_SILENT = 50  # above every level that is used
_COLOURS = {"debug": "\x1b[2m", "info": "\x1b[32m", "warning": "\x1b[33m", "error": "\x1b[31m", "critical": "\x1b[31m"}
_PLAIN = "\x1b[0m"


class Logs:
    """Makes the loggers of one program."""

    def __init__(
        self,
        level: Level = "info",
        format: Format = "human",
        stream: TextIO | None = None,
        clock: Clock | None = None,
    ) -> None:
        out = stream if stream is not None else sys.stderr
        render = _as_json if format == "json" else _ForPeople(colours=out.isatty())
        self._sink = _Sink(out)
        self._filter = structlog.make_filtering_bound_logger(_LEVELS[level])
        self._processors: list[structlog.typing.Processor] = [
            merge_contextvars,
            structlog.processors.add_log_level,
            _Timestamps(clock or SystemClock()),
            structlog.processors.format_exc_info,
            _redact,
            render,
        ]

    @classmethod
    def silent(cls) -> Logs:
        """Logs that say nothing, for programs that did not ask."""
        logs = cls()
        logs._filter = structlog.make_filtering_bound_logger(_SILENT)
        return logs

    def logger(self, name: str) -> Logger:
        """The logger of one part of the program, named after its room."""
        bound: Logger = structlog.wrap_logger(
            self._sink, processors=self._processors, wrapper_class=self._filter, context_class=dict
        ).bind(logger=name)
        return bound

    @contextmanager
    def with_standard_library(self, level: Level = "warning") -> Iterator[None]:
        """While it lasts, what libraries write with `logging` comes out here too."""
        root = logging.getLogger()
        bridge = _Bridge(self)
        bridge.setLevel(_LEVELS[level])
        root.addHandler(bridge)
        try:
            yield
        finally:
            root.removeHandler(bridge)


@contextmanager
def correlated(**ids: object) -> Iterator[None]:
    """Put `ids` on every event logged inside, by any logger: `with correlated(request_id=7): …`."""
    with bound_contextvars(**ids):
        yield


class _Sink:
    """Where lines go. A full disk or a closed pipe costs the line, never the program."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lines_lost = 0

    def msg(self, line: str) -> None:
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self.lines_lost += 1

    debug = info = warning = warn = error = critical = fatal = exception = msg


class _Timestamps:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event["timestamp"] = iso_timestamp(self._clock.now_ms())
        return event


def _redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return redacted(event)


def _as_json(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    first = {key: event.pop(key, "") for key in ("timestamp", "level", "logger", "event")}
    return json.dumps({**first, **event})


class _ForPeople:
    """`06:20:31.125 info    kernel  checkpoint written  version=120`; a traceback goes below."""

    def __init__(self, colours: bool) -> None:
        self._colours = colours

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> str:
        time = str(event.pop("timestamp"))[11:-1]
        level, name = str(event.pop("level")), str(event.pop("logger", ""))
        text, trace = _one_line(event.pop("event", "")), event.pop("exception", None)
        facts = " ".join(f"{key}={_fact(value)}" for key, value in event.items())
        shown = f"{_COLOURS.get(level, '')}{level:<7}{_PLAIN}" if self._colours else f"{level:<7}"
        line = f"{time} {shown} {name:<8} {text}" + (f"  {facts}" if facts else "")
        return f"{line}\n{trace}" if trace else line


def _one_line(value: object) -> str:
    """No value can fake a second line."""
    text = str(value)
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def _fact(value: object) -> str:
    if isinstance(value, str):
        return value if value.isprintable() and value and " " not in value else json.dumps(value)
    return json.dumps(value)


class _Bridge(logging.Handler):
    def __init__(self, logs: Logs) -> None:
        super().__init__()
        self._logs = logs

    def emit(self, record: logging.LogRecord) -> None:
        """A record whose arguments do not fit its text is shown as its text."""
        try:
            text = record.getMessage()
        except (TypeError, ValueError, KeyError):
            text = str(record.msg)
        level = min(record.levelno, _LEVELS["error"])
        self._logs.logger(record.name).log(level, text, exc_info=record.exc_info or None)
