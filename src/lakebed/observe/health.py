"""Whether the program lives and whether it is ready, with reasons.

A probe is quick and does no I/O: it looks at what its room already knows. Alive means "do not restart me"; ready
means "send me work". What is not alive is not ready.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from lakebed.errors import LakebedError

Probe = Callable[[], str | None]
"""None when all is well, else the reason why not."""


class CheckResult(msgspec.Struct, frozen=True):
    """What one probe said."""

    name: str
    ok: bool
    reason: str = ""


class HealthReport(msgspec.Struct, frozen=True):
    """What all of them said."""

    ok: bool
    checks: tuple[CheckResult, ...]


class Health:
    """Named probes of one program."""

    def __init__(self) -> None:
        self._probes: dict[str, tuple[Probe, bool]] = {}

    def add(self, name: str, probe: Probe, *, vital: bool = False) -> None:
        """Ask `probe` from now on, in place of one of that name; `vital` when only a restart can mend a failure."""
        self._probes[name] = probe, vital

    def remove(self, name: str) -> None:
        """Ask no more."""
        self._probes.pop(name, None)

    def alive(self) -> HealthReport:
        """For `/healthz`: the vital checks."""
        return self._ask(vital_only=True)

    def ready(self) -> HealthReport:
        """For `/readyz`: all checks."""
        return self._ask(vital_only=False)

    def _ask(self, vital_only: bool) -> HealthReport:
        probes = dict(self._probes).items()
        checks = tuple(_check(name, probe) for name, (probe, vital) in probes if vital or not vital_only)
        return HealthReport(all(check.ok for check in checks), checks)


def _check(name: str, probe: Probe) -> CheckResult:
    try:
        reason = probe()
    except LakebedError as error:
        reason = str(error)
    return CheckResult(name, reason is None, reason or "")
