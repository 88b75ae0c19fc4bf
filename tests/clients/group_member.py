"""One member of a consumer group, as a process of its own that can be killed: reads, commits, and tells what happens to it.

It prints a JSON line for every event, with the time of the machine's monotonic clock; it leaves when its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import select
import sys
import time
from collections.abc import Iterable
from typing import Any

SESSION_MS, REBALANCE_MS, HEARTBEAT_MS, POLL_S = 2_000, 60_000, 200, 0.1


def tell(event: str, value: object = None) -> None:
    print(json.dumps([time.monotonic(), event, value]), flush=True)


def leaves() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def confluent(options: dict[str, Any]) -> None:
    from confluent_kafka import Consumer, KafkaException

    protocol = options["protocol"]
    config = {
        "bootstrap.servers": options["bootstrap"],
        "group.id": options["group"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 50,
        "retry.backoff.max.ms": 200,
        "reconnect.backoff.max.ms": 200,
    }
    if protocol == "consumer":
        config["group.protocol"] = "consumer"
    else:
        config |= {
            "partition.assignment.strategy": protocol,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
        }
    if options.get("instance"):
        config["group.instance.id"] = options["instance"]
    consumer = Consumer(config)
    consumer.subscribe(
        [options["topic"]],
        on_assign=lambda _, places: tell("assigned", [place.partition for place in places]),
        on_revoke=lambda _, places: tell("revoked", [place.partition for place in places]),
        on_lost=lambda _, places: tell("revoked", [place.partition for place in places]),
    )
    pending = False
    while not leaves():
        messages = [each for each in consumer.consume(100, POLL_S) if each.error() is None]
        if messages:
            tell("read", [[each.partition(), each.offset()] for each in messages])
        elif not pending:
            continue
        pending = True  # a commit that a rebalance refuses is tried again
        try:
            done = consumer.commit(asynchronous=False)
            tell("committed", [[place.partition, place.offset] for place in done or [] if place.offset >= 0])
            pending = False
        except KafkaException as error:
            tell("not committed", str(error))
    consumer.close()


def kafka_python(options: dict[str, Any]) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            tell("revoked", [place.partition for place in revoked])

        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            tell("assigned", [place.partition for place in assigned])

    consumer = KafkaConsumer(
        bootstrap_servers=options["bootstrap"],
        group_id=options["group"],
        group_instance_id=options.get("instance"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        fetch_max_wait_ms=50,
    )
    consumer.subscribe([options["topic"]], listener=Listener())
    pending = False
    while not leaves():
        found = consumer.poll(timeout_ms=int(POLL_S * 1000))
        if found:
            tell("read", [[place.partition, each.offset] for place, some in found.items() for each in some])
        elif not pending:
            continue
        pending = True
        try:
            ends = [[place.partition, consumer.position(place)] for place in consumer.assignment()]
            consumer.commit()
            tell("committed", [end for end in ends if end[1] is not None])
            pending = False
        except KafkaError as error:
            tell("not committed", str(error))
    consumer.close()


async def aiokafka(options: dict[str, Any]) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            tell("revoked", [place.partition for place in revoked])

        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            tell("assigned", [place.partition for place in assigned])

    consumer = AIOKafkaConsumer(
        bootstrap_servers=options["bootstrap"],
        group_id=options["group"],
        group_instance_id=options.get("instance"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,  # else it is as short as the session
        heartbeat_interval_ms=HEARTBEAT_MS,
        fetch_max_wait_ms=50,
    )
    consumer.subscribe([options["topic"]], listener=Listener())
    await consumer.start()
    pending = False
    while not leaves():
        found = await consumer.getmany(timeout_ms=int(POLL_S * 1000))
        if found:
            tell("read", [[place.partition, each.offset] for place, some in found.items() for each in some])
        elif not pending:
            continue
        pending = True
        try:
            ends = {place: await consumer.position(place) for place in consumer.assignment()}
            await consumer.commit(ends)
            tell("committed", [[place.partition, offset] for place, offset in ends.items()])
            pending = False
        except KafkaError as error:
            tell("not committed", str(error))
    await consumer.stop()


def main() -> None:
    options = json.loads(sys.argv[1])
    if options["client"] == "aiokafka":
        asyncio.run(aiokafka(options))
    else:
        {"confluent": confluent, "kafka-python": kafka_python}[options["client"]](options)
    tell("left")


if __name__ == "__main__":
    main()
