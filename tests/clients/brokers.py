"""The brokers that clients are tried on: Apache Kafka, to prove the tests, and Lakebed."""

from __future__ import annotations

from dataclasses import dataclass

BROKERS = ("kafka", "lakebed")
SERVES_GROUPS = ("kafka", "lakebed")


@dataclass(frozen=True)
class Broker:
    """Which it is, and where clients find it."""

    name: str
    bootstrap: str
