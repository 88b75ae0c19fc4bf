"""Where clients connect: accepts connections, looks after their time-outs, and lets them finish when the broker stops."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

from lakebed.broker.connection import Connection
from lakebed.broker.connection_ports import Serve
from lakebed.broker.inbox import Intake
from lakebed.broker.lanes import LaneGate
from lakebed.broker.limits import Limits
from lakebed.broker.metrics import ConnectionMetrics
from lakebed.clock import Clock
from lakebed.config import Address
from lakebed.errors import Invalid, Unavailable
from lakebed.observe import Logger

_CHECK_EVERY_S = 1.0
_BACKLOG = 1024


class Listener:
    """All connections of one broker, whatever address they came by."""

    def __init__(
        self,
        serve: Serve,
        intake: Intake,
        limits: Limits,
        clock: Clock,
        metrics: ConnectionMetrics,
        logger: Logger,
        connections_max: int,
        lanes_max: int = 0,
        send_buffer_bytes: int = 0,
    ) -> None:
        self._serve, self._intake, self._limits = serve, intake, limits
        self._clock, self._metrics, self._logger = clock, metrics, logger
        self._connections_max, self._send_buffer_bytes = connections_max, send_buffer_bytes
        self._gate = LaneGate(lanes_max, limits.in_flight_max, clock, metrics, logger)
        metrics.lanes_taken.set_function(lambda: self._gate.taken)
        self._bound: list[tuple[socket.socket, str]] = []
        self._servers: list[asyncio.Server] = []
        self._checker: asyncio.Task[None] | None = None

    def bind(self, address: Address, name: str = "PLAINTEXT", shared: bool = False) -> Address:
        """Take `address`; with port 0 the system picks one. `shared`: other processes listen there too."""
        try:
            bound = _bound_socket(address, shared)
        except OSError as error:
            raise Unavailable(f"{address} cannot be listened at ({error.strerror})", "Choose another address") from None
        if self._send_buffer_bytes:  # inherited by the connections that are accepted
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
        self._bound.append((bound, name))
        return Address(address.host, bound.getsockname()[1])

    async def serve(self) -> None:
        """Accept connections at everything that was bound."""
        loop = asyncio.get_running_loop()
        while self._bound:
            bound, name = self._bound.pop()
            server = await loop.create_server(self._connections(name), sock=bound, backlog=_BACKLOG)
            self._servers.append(server)
        if self._checker is None:
            self._checker = loop.create_task(self._check(), name="connection checks")

    async def drain(self, timeout_s: float) -> None:
        """Accept nothing more, answer what is at work, close everything; after `timeout_s` by force."""
        while self._bound:
            self._bound.pop()[0].close()
        for server in self._servers:
            server.close()
        for connection in list(self._metrics.connections):
            connection.drain()
        deadline_s = self._clock.monotonic_s() + timeout_s
        while self._metrics.connections and self._clock.monotonic_s() < deadline_s:
            await self._clock.sleep(0.01)
        for connection in list(self._metrics.connections):
            connection.close("broker stops")
        if self._checker is not None:
            self._checker.cancel()
            await asyncio.gather(self._checker, return_exceptions=True)
        await self._gate.close()

    def _connections(self, name: str) -> Callable[[], asyncio.BaseProtocol]:
        def accept() -> asyncio.BaseProtocol:
            if len(self._metrics.connections) >= self._connections_max:
                return _TurnedAway()
            return Connection(
                self._serve, self._intake, self._limits, self._clock, self._metrics, self._logger, name, self._gate
            )

        return accept

    async def _check(self) -> None:
        while True:
            await self._clock.sleep(_CHECK_EVERY_S)
            now_s = self._clock.monotonic_s()
            for connection in list(self._metrics.connections):
                connection.check(now_s)


@contextmanager
def reserved_port(address: Address) -> Iterator[Address]:
    """The address with a port that is this process's to share, though it does not listen there itself."""
    try:
        bound = _bound_socket(address, shared=True)
    except OSError as error:
        raise Unavailable(f"{address} cannot be listened at ({error.strerror})", "Choose another address") from None
    with bound:
        yield Address(address.host, bound.getsockname()[1])


class _TurnedAway(asyncio.Protocol):
    """There are too many connections: this one is closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()


def _bound_socket(address: Address, shared: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        found = socket.getaddrinfo(address.host, address.port, family, socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror:
        raise Invalid(f"{address.host} is not a host of this machine", "Name an address to listen at") from None
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.setblocking(False)
        made.bind(found[0][4])
    except OSError:
        made.close()
        raise
    return made
