"""Commands that speak Kafka to a running broker: where it is, and the client they share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import click

from lakebed.broker import Cluster
from lakebed.clock import SystemClock
from lakebed.config import Address, KafkaSettings, parse_address
from lakebed.errors import Invalid

T = TypeVar("T")

BOOTSTRAP_VARIABLE = "LAKEBED_BOOTSTRAP"


def bootstrap_option(body: Callable[..., Any]) -> Callable[..., Any]:
    """Add --bootstrap, the address of any broker."""
    return click.option(
        "--bootstrap",
        metavar="HOST:PORT",
        envvar=BOOTSTRAP_VARIABLE,
        default=str(KafkaSettings().listen),
        show_default=True,
        help="Any broker.",
    )(body)


@asynccontextmanager
async def reached(bootstrap: str) -> AsyncIterator[Cluster]:
    """A client of the brokers at `bootstrap`, closed afterwards."""
    cluster = Cluster(_address(bootstrap), SystemClock())
    try:
        yield cluster
    finally:
        await cluster.close()


def with_cluster(bootstrap: str, work: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
    """Run `work` with a client."""

    async def run() -> T:
        async with reached(bootstrap) as cluster:
            return await work(cluster)

    return asyncio.run(run())


def _address(text: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as error:
        raise Invalid(f"--bootstrap {text!r} {error}", "Use an address such as 127.0.0.1:9092") from None
