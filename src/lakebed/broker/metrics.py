"""What the listener and its connections tell about themselves."""

from __future__ import annotations

from collections.abc import Callable

from lakebed.broker.connection import Connection
from lakebed.clock import Clock
from lakebed.observe import Metrics, Tally
from lakebed.protocol import Api, RequestHeader

REQUEST_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class ConnectionMetrics:
    """Counts connections, requests and bytes; knows who is connected."""

    def __init__(self, metrics: Metrics, clock: Clock, budget_bytes: Callable[[], int]) -> None:
        self.connections: set[Connection] = set()
        self._clock = clock
        self._active = metrics.gauge("connections_active", "Kafka connections that are open")
        self._opened = metrics.counter("connections_opened", "Kafka connections accepted")
        self._closed = metrics.counter("connections_closed", "Kafka connections closed, by reason", ["reason"])
        self._in = metrics.counted("request_received_bytes", "Bytes of requests received")
        self._out = metrics.counted("response_sent_bytes", "Bytes of responses sent")
        self._tallies = metrics.tallies(
            ("requests", "Requests by API"),
            ("request_seconds", "From a request's arrival to its answer, by API"),
            "api",
            REQUEST_BUCKETS_S,
        )
        self._held = metrics.gauge("request_held_bytes", "Bytes of requests in memory")
        self._held.set_function(budget_bytes)
        self.lanes_taken = metrics.gauge("connections_in_lanes", "Connections that are read and answered together")
        self._by_api: dict[int, Tally] = {}

    def opened(self, connection: Connection) -> None:
        self.connections.add(connection)
        self._active.set(len(self.connections))
        self._opened.inc()

    def closed(self, connection: Connection, reason: str) -> None:
        self.connections.discard(connection)
        self._active.set(len(self.connections))
        self._closed.labels(reason).inc()

    def received(self, header: RequestHeader, size_bytes: int) -> None:
        self._in.total += size_bytes
        api_key = header.api_key
        tally = self._by_api.get(api_key)
        if tally is None:
            tally = self._by_api[api_key] = self._tallies.of(Api(api_key).name.lower())
        tally.begun += 1

    def answered(self, header: RequestHeader, size_bytes: int, began_s: float) -> None:
        self._out.total += size_bytes
        self._by_api[header.api_key].ended(self._clock.monotonic_s() - began_s)

    def received_many(self, header: RequestHeader, count: int, size_bytes: int) -> None:
        self._in.total += size_bytes
        self._by_api[header.api_key].begun += count

    def answered_many(self, header: RequestHeader, count: int, size_bytes: int, began_s: float) -> None:
        self._out.total += size_bytes
        self._by_api[header.api_key].ended(self._clock.monotonic_s() - began_s, count)
