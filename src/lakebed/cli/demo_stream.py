"""The demo's second act: a real broker, a real Kafka client, and a kill -9 in the middle of a sentence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import msgspec

from lakebed.cli.demo_clients import Client, Seen, Sent, best_client
from lakebed.cli.demo_server import Server
from lakebed.cli.demo_stage import Stage, expect
from lakebed.clock import Clock

_TOPIC, _PARTITIONS, _GROUP = "orders", 3, "billing"
_RECORDS, _CUSTOMERS = 10_000, 100
_CUT_RECORDS, _CUT_AFTER = 50_000, 1_000
_SHOWN_METRICS = ('lakebed_requests_total{api="fetch"}', 'lakebed_wal_range_reads_total{domain="0"}')


class StreamAct:
    """A broker on the folder `root`, from its first topic to its death and back."""

    def __init__(self, root: Path, stage: Stage, clock: Clock) -> None:
        self._root, self._stage, self._clock = root, stage, clock
        self._first = [order(number) for number in range(_RECORDS)]
        self._more = [order(number) for number in range(_RECORDS, _RECORDS + _CUT_RECORDS)]

    def run(self) -> None:
        """Every claim is checked by reading back."""
        self._stage.act("The broker")
        self._root.mkdir(parents=True, exist_ok=True)
        with Server(self._root / "root", self._root / "broker.log") as server:
            client = self._meet(server)
            self._produce(client)
            self._read(client)
            begun = self._join(client)
            acknowledged = self._cut(client, server)
            client = self._return(server)
            total = self._find_all(client, acknowledged)
            self._resume(client, begun, total)
            self._look_around(server)
        self._look_inside()

    def _meet(self, server: Server) -> Client:
        self._stage.say("'lakebed up' starts a broker on an empty folder. Any Kafka client can talk to it.")
        client = best_client(server.kafka)
        self._stage.show(kafka=str(server.kafka), client=client.name)
        return client

    def _produce(self, client: Client) -> None:
        self._stage.say(
            f"It creates a topic with {_PARTITIONS} partitions and sends {_RECORDS:,} orders of {_CUSTOMERS} customers, "
            "with keys and headers, idempotently."
        )
        client.create_topic(_TOPIC, _PARTITIONS)
        began_s = self._clock.monotonic_s()
        done = client.produce(_TOPIC, self._first, lambda _: False)
        rate = self._rate(len(done), began_s)
        expect(len(done) == _RECORDS, "every record is acknowledged")
        self._stage.show(produced_records=len(done), produced_per_second=rate)
        self._stage.quote("Each acknowledgement came after the records and their commit were synced to disk.")

    def _read(self, client: Client) -> None:
        self._stage.say("It reads everything back.")
        began_s = self._clock.monotonic_s()
        seen = client.read(_TOPIC)
        rate = self._rate(len(seen), began_s)
        expect(len(seen) == _RECORDS, "as many records are read as were sent")
        _expect_in_order(seen, self._first)
        self._stage.show(read_records=len(seen), read_per_second=rate)
        self._stage.quote(
            "Keys, values and headers are the same; each customer's orders are in order; offsets are dense."
        )

    def _join(self, client: Client) -> list[Seen]:
        if not client.has_groups:
            return []
        self._stage.say(
            f"A member of the consumer group '{_GROUP}' reads half of them, commits its offsets and leaves."
        )
        half = client.read_in_group(_TOPIC, _GROUP, _RECORDS // 2)
        expect(len(half) == _RECORDS // 2, "a group's member is given what it asks for")
        self._stage.show(group_read_first=len(half))
        return half

    def _cut(self, client: Client, server: Server) -> list[Sent]:
        self._stage.say(f"{_CUT_RECORDS:,} more orders are on their way. In the middle of it: kill -9 of the broker.")

        def stop(done: int) -> bool:
            if done >= _CUT_AFTER:
                server.kill()
            return done >= _CUT_AFTER

        pid, done = server.pid, client.produce(_TOPIC, self._more, stop)
        expect(len(done) >= _CUT_AFTER, "some records were acknowledged before the kill")
        self._stage.show(killed_process=str(pid), acknowledged_before_the_kill=len(done))
        return done

    def _return(self, server: Server) -> Client:
        self._stage.say("A new broker opens the folder. Nothing was handed over: all there is lies in the folder.")
        began_s = self._clock.monotonic_s()
        server.start()
        self._stage.show(back_after_seconds=round(self._clock.monotonic_s() - began_s, 2))
        return best_client(server.kafka)

    def _find_all(self, client: Client, acknowledged: Sequence[Sent]) -> int:
        self._stage.say("Everything is read again.")
        seen = client.read(_TOPIC)
        kept = {each.record.value for each in seen}
        missing = sum(each.value not in kept for each in (*self._first, *acknowledged))
        expect(missing == 0, "nothing acknowledged is missing")
        _expect_in_order(seen, [*self._first, *self._more])
        self._stage.show(read_again_records=len(seen), acknowledged_and_missing=missing)
        return len(seen)

    def _resume(self, client: Client, begun: list[Seen], total: int) -> None:
        if not client.has_groups:
            self._stage.say(f"Groups are not shown: {client.name} joins none.")
            return
        self._stage.say(f"Another member of '{_GROUP}' goes on where the first one stopped.")
        rest = client.read_in_group(_TOPIC, _GROUP, total - len(begun))
        both = [*begun, *rest]
        places = {(each.partition, each.offset) for each in both}
        expect(len(places) == len(both) == total, "the group reads each record once, from where it stopped")
        self._stage.show(group_read_then=len(rest), group_read_twice=len(both) - len(places))

    def _look_around(self, server: Server) -> None:
        self._stage.say("Health and metrics are on the HTTP port.")
        status, body = server.page("/readyz")
        expect(status == 200, "the broker is ready")
        self._stage.show(readyz=f"{status} {body}")
        _, metrics = server.page("/metrics")
        shown = [line for line in metrics.splitlines() if line.startswith(_SHOWN_METRICS)]
        expect(len(shown) == len(_SHOWN_METRICS), "the metrics tell of requests and reads")
        for line in shown:
            self._stage.quote(line)

    def _look_inside(self) -> None:
        self._stage.say("The broker is stopped. This is what lies in the folder.")
        root = self._root / "root"
        objects = [path.stat().st_size for path in root.glob("wal/**/*.wo")]
        commits = [path.stat().st_size for path in root.glob("meta/*/_delta_log/" + "[0-9]" * 20 + ".json")]
        expect(bool(objects) and bool(commits), "records lie in objects, and commits name them")
        self._stage.show(
            write_ahead_objects=len(objects), object_bytes=sum(objects), commits=len(commits), commit_bytes=sum(commits)
        )

    def _rate(self, count: int, began_s: float) -> int:
        return round(count / (self._clock.monotonic_s() - began_s))


def order(number: int) -> Sent:
    """One of the orders that the demo sends, by its number."""
    customer = f"customer-{number % _CUSTOMERS}"
    value = msgspec.json.encode({"order": number, "customer": customer, "cents": number * 37 % 10_000})
    return Sent(customer.encode(), value, (("source", b"demo"), ("number", str(number).encode())))


def _expect_in_order(seen: Sequence[Seen], sent: Sequence[Sent]) -> None:
    """Each customer's orders are a beginning of what was sent, in order, once, unchanged; offsets have no gaps."""
    offsets, read, wanted = defaultdict(list), defaultdict(list), defaultdict(list)
    for each in seen:
        offsets[each.partition].append(each.offset)
        read[each.record.key].append(each.record)
    for record in sent:
        wanted[record.key].append(record)
    expect(all(some == list(range(len(some))) for some in offsets.values()), "offsets are dense and in order")
    expect(
        all(some == wanted[key][: len(some)] for key, some in read.items()),
        "a key's records are in order and unchanged",
    )
