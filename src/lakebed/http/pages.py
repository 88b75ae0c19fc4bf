"""What can be asked for, and the answers."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from lakebed.observe import CONTENT_TYPE, Health, HealthReport, Metrics

_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Page:
    """An answer, without its transport."""

    status: int
    content_type: str
    body: bytes


class Pages:
    """The pages of one program."""

    def __init__(self, health: Health, metrics: Metrics) -> None:
        self._health = health
        self._metrics = metrics

    def find(self, path: str) -> Page:
        """The page at `path`, or one that says there is none."""
        if path == "/healthz":
            return _report(self._health.alive())
        if path == "/readyz":
            return _report(self._health.ready())
        if path == "/metrics":
            return Page(200, CONTENT_TYPE, self._metrics.text())
        return problem(404, f"There is nothing at {path[:200]}. Try /healthz, /readyz or /metrics")


def problem(status: int, detail: str) -> Page:
    """An answer that says what is wrong."""
    return Page(status, _JSON, msgspec.json.encode({"status": status, "detail": detail}))


def _report(report: HealthReport) -> Page:
    return Page(200 if report.ok else 503, _JSON, msgspec.json.encode(report))
