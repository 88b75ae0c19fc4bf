"""The stream plane against Apache Kafka: same client, same settings, same machine, in turns.

Lakebed syncs to disk before each acknowledgement; Kafka, with its defaults, does not. What two brokers are compared by is the
ratio of two runs that follow each other at once, and of these the median: whatever else the machine does hits both.

Records have no keys, and the client puts them where it likes, as it does by default. When it is told to give each record to the
next partition, it soon spends twice the time on a record, whoever the broker is: probably because neighbours in its memory then
belong to different batches. These figures stand beside the others, without a bar.

Before each run, what the run before left is written to the disk, and the memory that is free is filled.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bench import load
from bench.load import Load
from bench.lookup import lookup_cost
from bench.memory import fill_memory
from bench.peers import Peer, kafka, lakebed
from bench.profile import EMPTY, Profile, profile
from bench.report import Figure
from bench.scratch import scratch

PARTITIONS, MANY_PARTITIONS = 10, 1000
_RUN_BYTES_MAX, _BURST_BYTES, _TAIL_BYTES = 5e9, 1e9, 40e6
_TAILS = 2
_WITH_BAR = 2
"""Of the kinds of producing, the first ones."""
_ROOM_BYTES = 45e9
"""What the runs of both brokers may take at a time."""
_LAKEBED = {"LAKEBED__WAL__GC_GRACE": "1m"}
"""What is deleted goes after a minute, as Kafka's does."""


@dataclass(frozen=True)
class Scale:
    """How long everything takes. A run goes on for long enough that what came first is on its way to the disk while more comes:
    of 1 GB that a broker does not sync, all is still in memory at the end. Figures without a bar are taken in few turns.
    """

    turns: int
    few_turns: int
    produce_s: float
    fetch_s: float
    latency_s: float
    index_entries: int


FULL = Scale(turns=5, few_turns=3, produce_s=12, fetch_s=2, latency_s=5, index_entries=1_000_000)
QUICK = Scale(turns=1, few_turns=1, produce_s=2, fetch_s=1, latency_s=3, index_entries=100_000)


@dataclass(frozen=True)
class Cost:
    """A run, the processor time that the broker spent on it, and what it says of its requests."""

    load: Load
    server_cpu_s: float
    profile: Profile = EMPTY

    @property
    def cpu_s_per_gb(self) -> float:
        return self.server_cpu_s / self.load.bytes * 1e9


@dataclass
class Course:
    """The runs of one kind, turn by turn, by the name of the broker."""

    runs: dict[str, list[Cost]] = field(default_factory=dict)

    def add(self, peer: Peer, cost: Cost) -> None:
        self.runs.setdefault(peer.name, []).append(cost)

    def mb_per_s(self, name: str) -> float:
        return statistics.median(cost.load.mb_per_s for cost in self.runs[name])

    def speed_ratio(self, one: str, other: str) -> float:
        pairs = zip(self.runs[one], self.runs[other], strict=True)
        return statistics.median(mine.load.mb_per_s / theirs.load.mb_per_s for mine, theirs in pairs)

    def cpu_ratio(self, one: str, other: str) -> float:
        pairs = zip(self.runs[one], self.runs[other], strict=True)
        return statistics.median(mine.cpu_s_per_gb / theirs.cpu_s_per_gb for mine, theirs in pairs)

    def cpu_s_per_gb(self, name: str) -> float:
        return statistics.median(cost.cpu_s_per_gb for cost in self.runs[name])

    def profile(self, name: str) -> Profile:
        return functools.reduce(Profile.plus, (cost.profile for cost in self.runs[name]))

    def client_cores(self, name: str) -> float:
        return statistics.median(cost.load.client_cpu_s / cost.load.seconds for cost in self.runs[name])


def run(quick: bool) -> list[Figure]:
    """All figures of this part."""
    scale = QUICK if quick else FULL
    with scratch() as folder, lakebed(folder, _LAKEBED) as ours, kafka(folder) as theirs:
        if not quick and shutil.disk_usage(folder).free < _ROOM_BYTES:
            raise SystemExit(f"streams need {_ROOM_BYTES / 1e9:.0f} GB of disk; set LAKEBED_BENCH_DIR, or QUICK=1")
        figures, rate = _throughput(scale, ours, theirs)
        peaks_mb = [ours.peak_rss_mb()]
    # Brokers that have nothing to delete: whom the clean-up of gigabytes hits would be chance.
    with (
        scratch() as folder,
        lakebed(folder, _LAKEBED) as ours,
        kafka(folder) as theirs,
        kafka(folder, synced=True) as synced,
    ):
        figures += _latency(scale, rate, ours, synced, theirs)
        peaks_mb.append(ours.peak_rss_mb())
    with scratch() as folder, lakebed(folder, _LAKEBED) as ours, kafka(folder) as theirs:
        figures += _partitions(scale, ours, theirs)
        peaks_mb.append(ours.peak_rss_mb())
    figures.append(Figure("peak_rss_mb", max(peaks_mb), "all processes, under the loads above", 600, at_least=False))
    with scratch() as folder:
        figures.append(asyncio.run(lookup_cost(folder, scale.index_entries, 1000)))
    return figures


def _throughput(scale: Scale, ours: Peer, theirs: Peer) -> tuple[list[Figure], float]:
    """The figures at full speed, and a tenth of the records of 1 KB a second that the slower broker took."""
    courses = large, small, large_in_turn, small_in_turn, burst = [Course() for _ in range(5)]
    for turn in range(-1, scale.turns):
        for peer in _in_turn(turn, ours, theirs):
            runs = _one_turn(scale, peer, turn)
            if turn >= 0:  # before, virtual machines compile and caches fill
                for course, cost in zip(courses, runs, strict=False):
                    course.add(peer, cost)
    tail = _tails(scale, ours, theirs)
    return [
        _speed("produce_1k_vs_kafka", large),
        _speed("produce_100b_vs_kafka", small),
        _speed("produce_1k_in_turn_vs_kafka", large_in_turn, None),
        _speed("produce_100b_in_turn_vs_kafka", small_in_turn, None),
        _speed("produce_1k_burst_vs_kafka", burst, None),
        _speed("fetch_tail_vs_kafka", tail),
        _cpu("server_cpu_per_gb_vs_kafka", large, 1.0),
        _cpu("fetch_cpu_per_gb_vs_kafka", tail, None),
        *(_request(f"produce_{kind}_request_ms", course) for kind, course in (("1k", large), ("100b", small))),
    ], min(large.mb_per_s("lakebed"), large.mb_per_s("kafka")) * 1e6 / 1000 / 10


def _one_turn(scale: Scale, peer: Peer, turn: int) -> list[Cost]:
    """The runs in the order of the courses: all in the first turns, then those that have a bar."""
    costs = []
    kinds = (
        ("large", 1000, load.ANY, _RUN_BYTES_MAX),
        ("small", 100, load.ANY, _RUN_BYTES_MAX),
        ("large-in-turn", 1000, PARTITIONS, _RUN_BYTES_MAX),
        ("small-in-turn", 100, PARTITIONS, _RUN_BYTES_MAX),
        ("burst", 1000, load.ANY, _BURST_BYTES),
    )
    for name, size, partitions, bytes_max in kinds if turn < scale.few_turns else kinds[:_WITH_BAR]:
        with _topic(peer, f"{name}-{turn}") as topic:
            costs.append(_produce(peer, topic, size, scale.produce_s, partitions, bytes_max=bytes_max))
    return costs


def _tails(scale: Scale, ours: Peer, theirs: Peer) -> Course:
    """Reading what was just written. It takes seconds and differs more from run to run than writing, so there are more runs."""
    course = Course()
    for turn in range(-1, _TAILS * scale.turns):
        for peer in _in_turn(turn, ours, theirs):
            with _topic(peer, f"tail-{turn}") as topic:
                count = load.produce(
                    peer.bootstrap, topic, partitions=PARTITIONS, size=1000, seconds=60, bytes_max=_TAIL_BYTES
                ).records
                before_s = peer.cpu_s()
                read = load.consume(peer.bootstrap, topic, partitions=PARTITIONS, count=count, seconds=scale.fetch_s)
                if turn >= 0:
                    course.add(peer, Cost(read, peer.cpu_s() - before_s))
    return course


def _partitions(scale: Scale, ours: Peer, theirs: Peer) -> list[Figure]:
    """Many partitions against few, for each broker by itself."""
    ratios: dict[str, list[float]] = {ours.name: [], theirs.name: []}
    speeds: dict[str, list[float]] = {ours.name: [], theirs.name: []}
    _warm(scale, ours, theirs)
    for turn in range(scale.few_turns):
        for peer in _in_turn(turn, ours, theirs):
            with _topic(peer, f"few-{turn}") as topic:
                few = _produce(peer, topic, 1000, scale.produce_s, queue=load.DEEPER)
            with _topic(peer, f"many-{turn}", MANY_PARTITIONS) as topic:
                many = _produce(peer, topic, 1000, scale.produce_s, MANY_PARTITIONS, queue=load.DEEPER)
            ratios[peer.name].append(many.load.mb_per_s / few.load.mb_per_s)
            speeds[peer.name].append(many.load.mb_per_s)
    told = {
        name: f"{statistics.median(of_one):.0f} MB/s, each record to the next of {MANY_PARTITIONS} partitions"
        for name, of_one in speeds.items()
    }
    return [
        Figure("produce_1000_vs_10_partitions", statistics.median(ratios[ours.name]), told[ours.name], 0.7),
        Figure("kafka_1000_vs_10_partitions", statistics.median(ratios[theirs.name]), told[theirs.name]),
    ]


def _latency(scale: Scale, rate: float, ours: Peer, synced: Peer, theirs: Peer) -> list[Figure]:
    runs: dict[str, list[Load]] = {peer.name: [] for peer in (ours, synced, theirs)}
    _warm(scale, ours, synced, theirs)
    for turn in range(-1, scale.turns):
        for peer in _in_turn(turn, ours, synced, theirs):
            with _topic(peer, f"paced-{turn}") as topic:
                paced = _produce(peer, topic, 1000, scale.latency_s, rate=rate).load
            if turn >= 0:
                runs[peer.name].append(paced)
    ratios = [mine.p99_ms / its.p99_ms for mine, its in zip(runs[ours.name], runs[synced.name], strict=True)]
    told = f"at {rate:.0f} records of 1 KB a second, a tenth of what the slower broker takes"
    return [
        Figure("produce_p99_vs_kafka_synced", statistics.median(ratios), told, 1.0, at_least=False),
        *(
            Figure(f"{percentile}_of_{name}", statistics.median(getattr(each, percentile) for each in of_one), told)
            for name, of_one in runs.items()
            for percentile in ("p50_ms", "p99_ms")
        ),
    ]


def _warm(scale: Scale, *peers: Peer) -> None:
    """Virtual machines compile, and caches fill."""
    for peer in peers:
        with _topic(peer, "warm") as topic:
            _produce(peer, topic, 1000, scale.produce_s, bytes_max=_BURST_BYTES)


def _produce(
    peer: Peer,
    topic: str,
    size: int,
    seconds: float,
    partitions: int = PARTITIONS,
    *,
    rate: float = 0,
    queue: Sequence[str] = load.DEEP,
    bytes_max: float = _RUN_BYTES_MAX,
) -> Cost:
    os.sync()  # what the run before left to be written is not this one's
    fill_memory()
    before_s, before = peer.cpu_s(), profile(peer.http)
    done = load.produce(
        peer.bootstrap,
        topic,
        partitions=partitions,
        size=size,
        seconds=seconds,
        bytes_max=bytes_max,
        rate=rate,
        queue=queue,
    )
    return Cost(done, peer.cpu_s() - before_s, profile(peer.http).since(before))


def _speed(name: str, course: Course, bar: float | None = 1.0) -> Figure:
    against = f"{course.mb_per_s('lakebed'):.0f} MB/s against {course.mb_per_s('kafka'):.0f} MB/s"
    cores = f"the client took {course.client_cores('lakebed'):.2f} and {course.client_cores('kafka'):.2f} cores"
    return Figure(name, course.speed_ratio("lakebed", "kafka"), f"{against}; {cores}", bar)


def _cpu(name: str, course: Course, bar: float | None) -> Figure:
    against = f"{course.cpu_s_per_gb('lakebed'):.2f} s against {course.cpu_s_per_gb('kafka'):.2f} s of processor per GB"
    return Figure(name, course.cpu_ratio("lakebed", "kafka"), against, bar, at_least=False)


def _request(name: str, course: Course) -> Figure:
    whole = course.profile("lakebed")
    return Figure(name, 1e3 * whole.mean("requests"), whole.told())


def _in_turn(turn: int, *peers: Peer) -> Sequence[Peer]:
    return peers if turn % 2 else peers[::-1]


@contextlib.contextmanager
def _topic(peer: Peer, name: str, partitions: int = PARTITIONS) -> Iterator[str]:
    peer.create_topic(name, partitions)
    yield name
    peer.delete_topic(name)
