"""The pages of a program whose work is done by several processes: it is well when all of them are, and their metrics are
shown together, apart by the label `worker`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from lakebed.clock import within
from lakebed.config import Address
from lakebed.http.pages import Page, nothing_at, report_page
from lakebed.observe import CONTENT_TYPE, CheckResult, HealthReport

_ANSWER_S = 5.0
_ANSWER_BYTES_MAX = 64_000_000

Workers = Callable[[], Mapping[int, Address | None]]
"""Where each worker's own pages are; None while it is not up."""


class FleetPages:
    """Asks the workers each time."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    async def find(self, path: str) -> Page:
        """The page at `path`, made of those of all workers."""
        if path in ("/healthz", "/readyz"):
            return report_page(await self._health(path))
        if path == "/metrics":
            texts = {number: await _body(address, path) for number, address in self._workers().items()}
            return Page(200, CONTENT_TYPE, merged(texts))
        return nothing_at(path)

    async def _health(self, path: str) -> HealthReport:
        checks = []
        for number, address in self._workers().items():
            answer = await _answer(address, path)
            ok = answer.startswith(b"HTTP/1.1 200 ")
            reason = "" if ok else answer.partition(b"\r\n\r\n")[2].decode("utf-8", "replace") or "it is not up"
            checks.append(CheckResult(f"worker {number}", ok, reason))
        return HealthReport(all(check.ok for check in checks), tuple(checks))


def merged(texts: Mapping[int, bytes]) -> bytes:
    """Expositions of several processes as one: each family once, each sample with its worker."""
    families: dict[str, list[str]] = {}
    name = ""
    for number, text in texts.items():
        for line in text.decode("utf-8", "replace").splitlines():
            if line.startswith("#"):
                name = line.split(" ", 3)[2]
                lines = families.setdefault(name, [])
                if line not in lines[:2]:
                    lines.append(line)
            elif line:
                families.setdefault(name, []).append(_labelled(line, number))
    return "".join(f"{line}\n" for lines in families.values() for line in lines).encode()


def _labelled(sample: str, number: int) -> str:
    series, _, value = sample.rpartition(" ")
    label = f'worker="{number}"'
    return f"{series[:-1]},{label}}} {value}" if series.endswith("}") else f"{series}{{{label}}} {value}"


async def _body(address: Address | None, path: str) -> bytes:
    return (await _answer(address, path)).partition(b"\r\n\r\n")[2]


async def _answer(address: Address | None, path: str) -> bytes:
    """The whole answer of a worker, or nothing when it does not give one."""
    if address is None:
        return b""
    try:
        reader, writer = await within(_ANSWER_S, asyncio.open_connection(address.host, address.port))
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nhost: {address}\r\n\r\n".encode())
            return await within(_ANSWER_S, _read_all(reader))
        finally:
            writer.close()
    except (OSError, TimeoutError):
        return b""


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    whole = bytearray()
    while len(whole) < _ANSWER_BYTES_MAX and (piece := await reader.read(1 << 16)):
        whole += piece
    return bytes(whole)
