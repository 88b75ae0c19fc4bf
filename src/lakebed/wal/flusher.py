"""The flusher: gathers what producers send, writes it durably, publishes it by one commit, then answers.

While one object is being written the next one gathers: no fixed wait when idle, large objects under load.
Invariant: objects are published in the order in which they were gathered, so requests commit in the order they came; and
nothing is answered before both writes are durable. Memory is bounded by a budget that callers heed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from lakebed.clock import Clock, jittered
from lakebed.config import WalSettings
from lakebed.errors import Ambiguous, Closed, Unavailable
from lakebed.kernel import CommitLog, CommitResult, Committed, Unknown
from lakebed.objects import ObjectStore
from lakebed.wal.budget import Budget
from lakebed.wal.flush import Flush, Request
from lakebed.wal.measures import WalMetrics
from lakebed.wal.names import Names
from lakebed.wal.outcomes import Appended, Piece, Publish, Verdicts
from lakebed.wal.paths import check_zone
from lakebed.wal.tail import TailCache

BATCHES_MAX = 8000
"""Of one object, so that its commit stays within the kernel's limit."""

_BESIDE_MIN_BYTES, _BESIDE_MAX_BYTES = 250_000, 1_000_000
"""Where starting an object costs little, half the size of the last one is worth its own beside those being written, within these
limits: producers have only so much on the way, and wait for all of it."""

_RETRY_FIRST_S, _RETRY_MAX_S = 0.01, 1.0


class Flusher:
    """The one way into the write-ahead objects of a domain."""

    def __init__(
        self,
        log: CommitLog,
        store: ObjectStore,
        publish: Publish,
        tail: TailCache,
        budget: Budget,
        *,
        domain: int,
        zone: str,
        clock: Clock,
        settings: WalSettings,
        linger_s: float = 0.0,
        metrics: WalMetrics | None = None,
    ) -> None:
        self._log = log
        self._store = store
        self._publish = publish
        self._tail = tail
        self._budget = budget
        self._domain = domain
        self._names = Names(store, check_zone(zone), domain, clock, settings.names_ahead)
        self._clock = clock
        self._settings = settings
        self._linger_s = settings.flush_linger_s if settings.flush_linger_s is not None else linger_s
        self._enough_bytes: int = settings.flush_bytes
        self._metrics = metrics or WalMetrics.unseen(clock)
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Request] = deque()
        self._waiting_bytes = 0
        self._puts: set[asyncio.Task[None]] = set()
        self._lingering: asyncio.Task[None] | None = None
        self._soon = self._overdue = False
        self._sealed: deque[Flush] = deque()
        self._arrived = asyncio.Event()
        self._closed = False
        self._commits = self._loop.create_task(self._publish_in_order(), name=f"flusher of domain {domain}")

    def append(self, pieces: Sequence[Piece]) -> asyncio.Future[list[Appended]]:
        """Take a request; the future gets one verdict per piece once it is durable and published.

        Requests commit in the order of these calls. The payloads must not change until they are answered. Raises `Unavailable`
        when the caller has not heeded the budget.
        """
        if self._closed:
            raise Closed(f"the flusher of domain {self._domain} is closed", "Start the broker again")
        request = Request(pieces, self._loop.create_future())
        self._budget.take(request.size_bytes)
        self._waiting.append(request)
        self._waiting_bytes += request.size_bytes
        if not self._soon:
            self._consider()
        return request.future

    async def close(self) -> None:
        """Write and publish what has come in, then stop."""
        self._closed = True
        if self._lingering is not None:
            self._lingering.cancel()
        while self._waiting:
            self._start()
            await asyncio.sleep(0)
        self._arrived.set()
        await self._commits
        await self._names.close()

    def _consider(self) -> None:
        """Begin a flush if it is time: nothing is being written, enough has gathered, or it has waited long enough."""
        flying = len(self._puts)
        if not self._waiting or flying >= self._settings.puts_in_flight:
            return
        full = self._waiting_bytes >= self._enough_bytes
        if full or self._overdue or (not flying and not self._linger_s):
            self._soon = True
            self._loop.call_soon(self._start_soon)
        elif self._linger_s and self._lingering is None:
            self._lingering = self._loop.create_task(self._linger())

    async def _linger(self) -> None:
        try:
            await self._clock.sleep(self._linger_s)
        finally:
            self._lingering = None
        self._overdue = bool(self._waiting)
        if not self._soon:
            self._consider()

    def _start_soon(self) -> None:
        self._soon = False
        if self._waiting:
            self._start()
        self._consider()

    def _start(self) -> None:
        self._overdue = False
        flush = Flush(self._names.take(), self._gather(), self._domain, self._clock, self._publish)
        if not self._linger_s:
            half = min(max(flush.size_bytes // 2, _BESIDE_MIN_BYTES), _BESIDE_MAX_BYTES)
            self._enough_bytes = min(half, self._settings.flush_bytes)
        self._sealed.append(flush)
        self._arrived.set()
        task = self._loop.create_task(self._put(flush))
        self._puts.add(task)
        task.add_done_callback(self._landed)

    def _gather(self) -> list[Request]:
        """The next requests, up to the limits of one object, at least one."""
        taken: list[Request] = []
        size = batches = 0
        limit = self._settings.flush_bytes
        while self._waiting:
            request = self._waiting[0]
            batches += request.batch_count
            if taken and (size + request.size_bytes > limit or batches > BATCHES_MAX):
                break
            size += request.size_bytes
            taken.append(self._waiting.popleft())
        self._waiting_bytes -= size
        return taken

    async def _put(self, flush: Flush) -> None:
        """Make the object durable; `flush.put` says how that went."""
        began_s = self._clock.monotonic_s()
        pause_s = _RETRY_FIRST_S
        try:
            flush.encode(self._tail.buffers.take)
            while True:
                try:
                    await self._store.put(flush.segment, flush.whole)
                    break
                except Unavailable:
                    self._metrics.put_failures.inc()
                    flush.lend()
                    if self._clock.monotonic_s() - began_s >= self._settings.put_timeout_s:
                        raise
                await self._clock.sleep(jittered(self._clock, pause_s))
                pause_s = min(2 * pause_s, _RETRY_MAX_S)
        except Exception as error:  # noqa: BLE001 whoever waits must hear of it
            flush.put.set_result(error)
            return
        self._metrics.put_s.observe(self._clock.monotonic_s() - began_s)
        self._metrics.object_bytes.observe(len(flush.whole))
        flush.put.set_result(None)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._puts.discard(task)
        if not self._soon:
            self._consider()

    async def _publish_in_order(self) -> None:
        while self._sealed or not self._closed:
            if not self._sealed:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            await self._sealed[0].put
            ready = [self._sealed.popleft()]
            while self._sealed and self._sealed[0].put.done():
                ready.append(self._sealed.popleft())
            await self._publish_all(ready)

    async def _publish_all(self, flushes: list[Flush]) -> None:
        """Commit objects side by side, which the kernel folds into one commit; those that fail go again one by one."""
        durable = [flush for flush in flushes if not self._failed_to_land(flush)]
        tries = [self._try(flush) for flush in durable]
        results = [await tries[0]] if len(tries) == 1 else await asyncio.gather(*tries)
        for flush, result in zip(durable, results, strict=True):
            try:
                self._settle(flush, result if isinstance(result, Committed) else await self._insist(flush, result))
            except Exception as error:  # noqa: BLE001 whoever waits must hear of it, and the next object has its own chance
                self._fail(flush, error)

    async def _try(self, flush: Flush) -> CommitResult[Verdicts] | Exception:
        try:
            return await self._log.commit(flush.decide, txn_id=flush.txn_id)
        except Exception as error:  # noqa: BLE001 judged by `_insist`
            return error

    async def _insist(self, flush: Flush, result: CommitResult[Verdicts] | Exception) -> Committed[Verdicts]:
        """Commit until it is certain, or time is up."""
        until_s, pause_s = self._clock.monotonic_s() + self._settings.put_timeout_s, _RETRY_FIRST_S
        while not isinstance(result, Committed):
            if isinstance(result, Exception) and not isinstance(result, Unavailable):
                raise result
            if self._clock.monotonic_s() >= until_s:
                raise _uncertain(flush, result)
            await self._clock.sleep(jittered(self._clock, pause_s))
            pause_s = min(2 * pause_s, _RETRY_MAX_S)
            result = await self._try(flush)
        return result

    def _failed_to_land(self, flush: Flush) -> bool:
        error = flush.put.result()
        if error is not None:
            self._fail(flush, error)
        return error is not None

    def _settle(self, flush: Flush, result: Committed[Verdicts]) -> None:
        self._tail.keep(flush.own(), flush.written, result.answer, result.version)
        self._metrics.flush_s.observe(self._clock.monotonic_s() - flush.began_s)
        flush.answer(result.answer)
        self._release(flush)

    def _fail(self, flush: Flush, error: Exception) -> None:
        self._metrics.flush_failures.inc()
        flush.fail(error)
        self._release(flush)

    def _release(self, flush: Flush) -> None:
        self._budget.give(flush.size_bytes)


def _uncertain(flush: Flush, result: object) -> Unavailable:
    if isinstance(result, Unknown):
        return Ambiguous(f"{flush.segment} may or may not be published as version {result.version}", "Send again")
    return Unavailable(f"{flush.segment} could not be published ({result})", "Send again")
