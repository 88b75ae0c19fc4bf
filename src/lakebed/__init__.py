"""Lakebed: a Kafka-compatible event store on object storage whose topics are lake tables."""

__version__ = "0.1.0"
