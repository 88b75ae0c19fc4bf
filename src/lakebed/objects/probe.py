"""Proof, at start, that a store keeps its word: some servers accept a precondition and ignore it.

A log on such a store would lose commits without a sound, so it is refused before anything is written that matters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from lakebed.clock import Clock, SystemClock
from lakebed.errors import Ambiguous, Conflict, Exists, Invalid, NotFound, Unavailable
from lakebed.objects.port import ETag, Key, ObjectStore

_RACERS = 4
_ATTEMPTS = 3
_REMEDY = "Use a server that honours If-None-Match and If-Match (conditional writes), or switch them on"


async def prove_preconditions(store: ObjectStore, prefix: Key = "probe/", clock: Clock | None = None) -> None:
    """Return when create-if-absent and compare-and-swap were seen to hold; else `Invalid`. Leaves nothing behind."""
    clock = SystemClock() if clock is None else clock
    for attempt in range(1, _ATTEMPTS + 1):
        key = f"{prefix}{clock.uuid7()}"
        try:
            await _prove(store, key)
            return
        except Unavailable:
            # Each attempt has names of its own: an answer that was lost spoils only the attempt it belonged to.
            if attempt == _ATTEMPTS:
                raise
        finally:
            await _clean(store, key)


async def _prove(store: ObjectStore, key: Key) -> None:
    first = await _expect(store.create(f"{key}-one", b"first"))
    await _refused(store.create(f"{key}-one", b"second"), "creating a name that was taken succeeded")
    await _holds(store, f"{key}-one", b"first")
    second = await _expect(store.replace(f"{key}-one", b"third", first))
    if second == first:
        raise Invalid(f"{store} is refused: the etag did not change when the object did", _REMEDY)
    await _refused(store.replace(f"{key}-one", b"fourth", first), "replacing by an old etag succeeded")
    await _holds(store, f"{key}-one", b"third")
    await _refused(store.replace(f"{key}-none", b"fifth", second), "replacing an object that is not there succeeded")
    await _race(store, f"{key}-race")


async def _race(store: ObjectStore, key: Key) -> None:
    bodies = [f"racer {number}".encode() for number in range(_RACERS)]
    answers = await asyncio.gather(*(store.create(key, body) for body in bodies), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, Exists):
            raise answer
    winners = [body for body, answer in zip(bodies, answers, strict=True) if not isinstance(answer, BaseException)]
    if not winners:
        raise Ambiguous(f"{store}: nobody seemed to win a race", "Retry")
    if len(winners) > 1:
        raise Invalid(f"{store} is refused: {len(winners)} of {_RACERS} racers created the same name", _REMEDY)
    await _holds(store, key, winners[0])


async def _expect(write: Awaitable[ETag]) -> ETag:
    """A write that nothing speaks against. A conflict with ourselves means that an answer was lost below us."""
    try:
        return await write
    except Conflict as error:
        raise Ambiguous("a write to a name of our own met a conflict", "Retry") from error


async def _refused(write: Awaitable[ETag], lie: str) -> None:
    try:
        await write
    except Conflict:
        return
    raise Invalid(f"the store is refused: {lie}", _REMEDY)


async def _holds(store: ObjectStore, key: Key, expected: bytes) -> None:
    try:
        body, _ = await store.get(key)
    except NotFound:
        raise Invalid(f"{store} is refused: an object just written cannot be read", _REMEDY) from None
    if body != expected:
        raise Invalid(f"{store} is refused: a write that was answered with a conflict was carried out", _REMEDY)


async def _clean(store: ObjectStore, key: Key) -> None:
    for name in ("one", "none", "race"):
        try:
            await store.delete(f"{key}-{name}")
        except Unavailable:
            continue  # a few bytes under a name that nobody uses
