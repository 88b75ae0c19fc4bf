"""The load generator of load.c, compiled against the librdkafka inside confluent-kafka and run in its own process."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import msgspec

SAFE = ("acks=all", "enable.idempotence=true")
"""How producers produce: idempotent, acknowledged by all."""
DEEP = ("queue.buffering.max.messages=1000000", "queue.buffering.max.kbytes=131072")
"""A queue that is counted in bytes: small records fill it no sooner than large ones."""
DEEPER = ("queue.buffering.max.messages=1000000",)
"""As many bytes as the client allows by default, so that one of a thousand partitions gets large batches too. In a queue of
128 MB they would have 128 KB, and with five requests on the way the figure would be the queue's."""
EAGER = ("fetch.wait.max.ms=1", "fetch.queue.backoff.ms=5")
"""How consumers consume: they neither sit in long polls between two rounds nor pause when their queue was full."""
ANY = 0
"""Records without keys go where the client puts them: to one partition for a while, then to another."""

_SOURCE = Path(__file__).with_name("load.c")
_CACHE = Path(__file__).parents[1] / ".cache" / "bench"
_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Load:
    """What one run came to."""

    records: int
    bytes: float
    seconds: float
    client_cpu_s: float
    failed: int = 0
    p50_ms: float = 0.0
    p99_ms: float = 0.0

    @property
    def mb_per_s(self) -> float:
        return self.bytes / self.seconds / 1e6


def produce(
    bootstrap: str,
    topic: str,
    *,
    size: int,
    seconds: float,
    bytes_max: float,
    partitions: int = ANY,
    rate: float = 0,
    queue: Sequence[str] = DEEP,
) -> Load:
    """Send records of `size` bytes to `ANY` partition or to so many in turn, as fast as they go or `rate` a second."""
    words = (bootstrap, topic, partitions, size, seconds, bytes_max, rate, *SAFE, *queue)
    return _run("produce", *words, patience_s=seconds + _PATIENCE_S)


def consume(bootstrap: str, topic: str, *, partitions: int, count: int, seconds: float) -> Load:
    """Read the first `count` records of the topic again and again."""
    return _run("consume", bootstrap, topic, partitions, count, seconds, *EAGER)


def _run(*words: object, patience_s: float = _PATIENCE_S) -> Load:
    command = [str(word) for word in (_program(), *words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience_s)
    if done.returncode != 0:
        raise RuntimeError(f"load {words[0]} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    load = msgspec.json.decode(done.stdout, type=Load)
    if load.failed or not load.records:
        raise RuntimeError(
            f"load {words[0]}: {load.failed} records failed, {load.records} did not: {done.stderr[-500:]}"
        )
    return load


def _program() -> Path:
    digest = hashlib.sha256(_SOURCE.read_bytes() + confluent_kafka.__version__.encode()).hexdigest()[:16]
    program = _CACHE / f"load-{digest}"
    if not program.exists():
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise RuntimeError("the load generator is a C program: install a C compiler")
        library = _library()
        _CACHE.mkdir(parents=True, exist_ok=True)
        flags = ["-O2", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", f"-Wl,-rpath,{library.parent}"]
        partial = program.with_suffix(".partial")
        subprocess.run([compiler, *flags, _SOURCE, "-o", partial, library], check=True)
        partial.rename(program)
    return program


def _library() -> Path:
    """Wheels carry the library beside the package, under a name of their own."""
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    found = sorted(folder.glob("librdkafka-*.so*"))
    if not found:
        raise RuntimeError(f"{folder} holds no librdkafka: install confluent-kafka from a wheel")
    return found[0]
