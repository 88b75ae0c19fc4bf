"""Having orders carried out by Spark's tasks.

Invariant: Spark is started by the first order and not before. Only the DataFrame API is used, so that clusters and Connect
servers do as well as a local session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakebed.config import Settings
from lakebed.errors import Closed, Unavailable
from lakebed.pipeline.session import spark_session
from lakebed.pipeline.settle.tasks import ANSWER_SCHEMA, run


class SparkRunner:
    """Every order is a Spark task."""

    def __init__(self, settings: Settings, open_session: Callable[[], SparkSession] | None = None) -> None:
        self._open = open_session or partial(spark_session, settings, app_name="lakebed settle", driver_works=False)
        self._session: SparkSession | None = None
        self._closed = False

    async def run(self, orders: Sequence[bytes]) -> list[bytes]:
        try:
            return await asyncio.to_thread(self._run, tuple(orders))
        except asyncio.CancelledError:
            self._closed = True
            if self._session is not None:
                await asyncio.to_thread(self._session.interruptAll)
            raise

    async def close(self) -> None:
        self._closed = True
        if self._session is not None:
            session, self._session = self._session, None
            with suppress(Py4JError, OSError):  # its Java process may have gone before it
                await asyncio.to_thread(session.stop)

    def _run(self, orders: tuple[bytes, ...]) -> list[bytes]:
        session = self._session = self._session or self._open()
        if self._closed:
            raise Closed("the settler is stopping", "The next one does it anew")
        count = len(orders)
        try:
            rows = session.range(0, count, 1, count).mapInArrow(partial(run, orders), ANSWER_SCHEMA).collect()
        except (PySparkException, Py4JError, OSError) as error:
            if isinstance(error, Py4JNetworkError | OSError) or _java_has_ended():
                raise Closed("Spark's Java process has ended", "Start the settler again") from error
            raise Unavailable(f"Spark did not finish its tasks ({_reason(error)})", "It is tried again") from error
        outcomes = {row.task: bytes(row.outcome) for row in rows}
        return [outcomes[number] for number in range(count)]


def _java_has_ended() -> bool:
    """Whether the Java process that this one has started, if it did, is gone."""
    process = getattr(SparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def _reason(error: Exception) -> str:
    """The line that tells what a task met."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("lakebed.errors.")]
    return (told or lines or [type(error).__name__])[-1 if told else 0][:500]
