"""The limits of a connection: what keeps one client from taking what belongs to all."""

from __future__ import annotations


class Limits:
    """What one connection may hold and how long it may take."""

    __slots__ = ("idle_timeout_s", "in_flight_bytes_max", "in_flight_max", "receive_timeout_s", "send_timeout_s")

    def __init__(
        self,
        in_flight_max: int = 128,
        in_flight_bytes_max: int = 64_000_000,
        idle_timeout_s: float = 600.0,
        receive_timeout_s: float = 30.0,
        send_timeout_s: float = 60.0,
    ) -> None:
        self.in_flight_max = in_flight_max
        self.in_flight_bytes_max = in_flight_bytes_max
        self.idle_timeout_s = idle_timeout_s
        self.receive_timeout_s = receive_timeout_s
        self.send_timeout_s = send_timeout_s
