"""Work in threads of a test, whose trouble is told where the test looks for it."""

from __future__ import annotations

from collections.abc import Callable


def guarded(work: Callable[[], object], troubles: list[str]) -> None:
    """Do it; what goes wrong is for whoever looks into `troubles`."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - told by the thread that asks for the outcome
        troubles.append(f"{getattr(work, '__name__', 'work')}: {error!r}")
