"""Hearing of changed keys: one stream of notifications per shard, shared by all who listen.

Invariant: whoever listens is called for every key created while the stream runs, and with None whenever something may
have been missed. Hearing is a hint: it saves looking, it never replaces it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from lakebed.clock import Clock, jittered
from lakebed.errors import Invalid, Unavailable

Listener = Callable[[str | None], None]

_RETRY_S_MIN, _RETRY_S_MAX = 0.1, 5.0


class KeyWatch:
    """Calls the listeners of a folder (a key up to its last `/`) for each key created in it."""

    def __init__(
        self,
        shard_of: Callable[[str], Awaitable[int]],
        notifications: Callable[[int], AsyncIterator[dict[str, bool]]],
        clock: Clock,
    ) -> None:
        self._shard_of, self._notifications, self._clock = shard_of, notifications, clock
        self._listeners: dict[str, set[Listener]] = {}
        self._streams: dict[int, asyncio.Task[None]] = {}

    def listen(self, folder: str, listener: Listener) -> None:
        """Call `listener` from now on, as far as the folder's partition is followed."""
        self._listeners.setdefault(folder, set()).add(listener)

    def forget(self, folder: str, listener: Listener) -> None:
        """Stop calling."""
        listeners = self._listeners.get(folder, set())
        listeners.discard(listener)
        if not listeners:
            self._listeners.pop(folder, None)

    async def follow(self, partition: str) -> None:
        """See to it that the partition's shard is followed. Cheap when it is: call it before each wait."""
        shard = await self._shard_of(partition)
        stream = self._streams.get(shard)
        if stream is None or stream.done():
            self._streams[shard] = asyncio.create_task(self._run(shard), name=f"oxia-watch-{shard}")

    async def close(self) -> None:
        """Stop all streams."""
        for stream in self._streams.values():
            stream.cancel()
        await asyncio.gather(*self._streams.values(), return_exceptions=True)
        self._streams.clear()

    async def _run(self, shard: int) -> None:
        retry_s = _RETRY_S_MIN
        while self._listeners:
            try:
                async for changed in self._notifications(shard):
                    self._tell(changed)
                    retry_s = _RETRY_S_MIN
            except Invalid:
                return  # notifications are switched off there: waits fall back to looking now and then
            except Unavailable:
                retry_s = min(retry_s * 2, _RETRY_S_MAX)
            await self._clock.sleep(jittered(self._clock, retry_s))

    def _tell(self, changed: dict[str, bool]) -> None:
        if not changed:  # the first of a stream: what happened before it was not heard
            for listener in [one for listeners in self._listeners.values() for one in listeners]:
                listener(None)
        for key, created in changed.items():
            if created:
                for listener in list(self._listeners.get(key.rpartition("/")[0], ())):
                    listener(key)
