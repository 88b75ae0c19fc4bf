"""The limits of a connection: what keeps one client from taking what belongs to all."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What one connection may hold and how long it may take."""

    in_flight_max: int = 128
    in_flight_bytes_max: int = 64_000_000
    idle_timeout_s: float = 600.0
    receive_timeout_s: float = 30.0
    send_timeout_s: float = 60.0
