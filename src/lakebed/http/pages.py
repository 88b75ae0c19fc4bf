"""What can be asked for, and the answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import msgspec

from lakebed.observe import CONTENT_TYPE, Health, HealthReport, Metrics

_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Page:
    """An answer, without its transport."""

    status: int
    content_type: str
    body: bytes


class Site(Protocol):
    """Something that has pages."""

    async def find(self, path: str) -> Page: ...


class Pages:
    """The pages of one program."""

    def __init__(self, health: Health, metrics: Metrics) -> None:
        self._health = health
        self._metrics = metrics

    async def find(self, path: str) -> Page:
        """The page at `path`, or one that says there is none."""
        if path == "/healthz":
            return report_page(self._health.alive())
        if path == "/readyz":
            return report_page(self._health.ready())
        if path == "/metrics":
            return Page(200, CONTENT_TYPE, self._metrics.text())
        return nothing_at(path)


def nothing_at(path: str) -> Page:
    """The answer where there is no page."""
    return problem(404, f"There is nothing at {path[:200]}. Try /healthz, /readyz or /metrics")


def problem(status: int, detail: str) -> Page:
    """An answer that says what is wrong."""
    return Page(status, _JSON, msgspec.json.encode({"status": status, "detail": detail}))


def report_page(report: HealthReport) -> Page:
    """A health report; its status says whether all is well."""
    return Page(200 if report.ok else 503, _JSON, msgspec.json.encode(report))
