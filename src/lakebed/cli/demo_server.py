"""A real `lakebed up` as a child process, for the demo to drive and to kill.

Invariant: when the context ends, the process has ended too.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from types import FrameType, TracebackType
from typing import NoReturn

from lakebed.config import Address, parse_address
from lakebed.errors import Unavailable

_READY_S, _STOP_S, _PAGE_S = 30.0, 15.0, 5.0
_ANY_PORT = "127.0.0.1:0"
_READY = re.compile(r"ready kafka=(\S+) http=(\S+)")
_IMPATIENT = {
    "LAKEBED__LEASES__TTL": "2s",
    "LAKEBED__GROUPS__INITIAL_REBALANCE_DELAY": "0s",
    "LAKEBED__LOGGING__LEVEL": "warning",
}
"""A killed broker's leases end soon and a group of one waits for nobody: a demo is short."""


class Server:
    """Starts the broker on entry; may be killed and started again; stopped on exit."""

    def __init__(self, root: Path, events: Path) -> None:
        self._root, self._events = root, events
        self._process: subprocess.Popen[str] | None = None
        self._handler = signal.getsignal(signal.SIGTERM)
        self.kafka = self.http = Address("127.0.0.1", 0)

    def __enter__(self) -> Server:
        self._handler = signal.signal(signal.SIGTERM, _leave)
        try:
            self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._stop()
        finally:
            signal.signal(signal.SIGTERM, self._handler)

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def start(self) -> None:
        """Run it; returns when clients may come."""
        line = [sys.executable, "-m", "lakebed", "up", "--root", str(self._root)]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LAKEBED_")}
        with self._events.open("a") as events:
            self._process = subprocess.Popen(
                [*line, "--kafka", _ANY_PORT, "--http", _ANY_PORT],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=events,
                text=True,
                cwd=self._events.parent,
                env=kept | _IMPATIENT,
            )
        ready = _READY.fullmatch(self._first_line().strip())
        if ready is None:
            raise Unavailable(f"the broker did not start: {self._last_words()}", "Run 'lakebed up' to see why")
        self.kafka, self.http = parse_address(ready[1]), parse_address(ready[2])

    def kill(self) -> None:
        """What a power cut does to a process: no warning, no last words."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOP_S)

    def page(self, path: str) -> tuple[int, str]:
        """Status and text of a page of the HTTP listener."""
        connection = HTTPConnection(self.http.host, self.http.port, timeout=_PAGE_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def _first_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            return self._process.stdout.readline() if selector.select(_READY_S) else ""

    def _last_words(self) -> str:
        return (self._events.read_text().strip().splitlines() or ["it said nothing"])[-1]

    def _stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM becomes an exception, so that the broker is stopped on the way out."""
    raise SystemExit(128 + number)
