"""Leases: who may act for a resource, elected by compare-and-swap on one small object.

A lease elects; it does not protect. Its token, which only ever grows, is what the holder fences with in the log it
writes. No two machines' clocks are compared: a challenger must see the object unchanged for the whole of its time on its
own clock, and a holder counts from before it asked for its last renewal and stops a margin earlier.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from lakebed.clock import Clock
from lakebed.errors import Ambiguous, Conflict, Corrupt, Fenced, Invalid, NotFound, Unavailable
from lakebed.objects.keys import check_key
from lakebed.objects.port import ETag, Key, ObjectStore

MARGIN = 0.1
"""The part of its time that a holder gives up, against clocks that do not run alike."""
_FORMAT = 1
_SUFFIX = ".json"
_SEEN_MAX = 100_000
_ATTEMPTS = 4


class LeaseRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The object's content, as JSON in this order. An empty holder means free."""

    format: int
    holder: str
    token: int
    ttl_ms: int
    renewals: int
    nonce: str
    """Chosen at acquisition; tells two challengers apart who wrote the same token."""
    data: dict[str, object]


@dataclass(frozen=True, slots=True)
class Holding:
    """A resource that someone holds, as others see it."""

    resource: str
    holder: str
    token: int
    data: Mapping[str, object]


class Lease:
    """The right to act for `resource`, as long as `alive`. Made and renewed by `Leases`."""

    __slots__ = ("_clock", "_etag", "_record", "_renewals", "_sure_since_s", "_usable_s", "resource")

    def __init__(self, clock: Clock, resource: str, record: LeaseRecord, etag: ETag, since_s: float) -> None:
        self.resource = resource
        self._clock = clock
        self._usable_s = record.ttl_ms / 1000 * (1 - MARGIN)
        self._record = record
        self._etag = etag
        self._renewals = record.renewals
        self._sure_since_s: float | None = since_s

    def __repr__(self) -> str:
        return f"Lease({self.resource!r}, holder={self.holder!r}, token={self.token})"

    @property
    def holder(self) -> str:
        return self._record.holder

    @property
    def token(self) -> int:
        return self._record.token

    @property
    def data(self) -> Mapping[str, object]:
        return self._record.data

    def alive(self) -> bool:
        """Whether the holder may still act. False before any challenger can have taken over."""
        return self.left_s() > 0

    def left_s(self) -> float:
        """For how long, at least, the lease stays alive without renewal. Time the machine slept counts."""
        if self._sure_since_s is None:
            return 0.0
        return max(0.0, self._sure_since_s + self._usable_s - self._clock.boot_s())

    def _next_renewal(self) -> int:
        """Never twice the same, landed or not: an earlier try that lands late must not pass for a later one."""
        self._renewals += 1
        return self._renewals

    def _renewed(self, record: LeaseRecord, etag: ETag, since_s: float) -> None:
        self._record, self._etag = record, etag
        if self._sure_since_s is not None:
            self._sure_since_s = max(self._sure_since_s, since_s)

    def _end(self) -> None:
        self._sure_since_s = None


class Leases:
    """The leases under `prefix`. One instance per process: it remembers what it has seen, and since when."""

    def __init__(self, store: ObjectStore, clock: Clock, ttl_s: float = 10.0, prefix: Key = "leases/") -> None:
        if ttl_s <= 0:
            raise Invalid(f"a lease of {ttl_s} s never lives", "Give a positive number of seconds")
        self.ttl_s = ttl_s
        self._store = store
        self._clock = clock
        self._prefix = prefix
        self._seen: OrderedDict[Key, _Seen] = OrderedDict()

    async def acquire(
        self, resource: str, holder: str, data: Mapping[str, object] | None = None, dead_token: int | None = None
    ) -> Lease | None:
        """Try once. None when another holds it, or won it just now.

        Called again and again while someone holds it, it takes over when that one has not renewed for its whole time;
        at once from the holder with `dead_token`, which the caller knows to be dead.
        """
        if not holder:
            raise Invalid("a lease needs a holder", "Give the process a name")
        since_s = self._clock.boot_s()
        asked_s = self._clock.monotonic_s()
        found = await self._look(resource)
        dead = found is not None and found.record.token == dead_token
        if found is not None and not self._is_free(resource, found, asked_s) and not dead:
            return None
        record = LeaseRecord(
            format=_FORMAT,
            holder=holder,
            token=1 if found is None else found.record.token + 1,
            ttl_ms=int(self.ttl_s * 1000),
            renewals=0,
            nonce=str(self._clock.uuid7()),
            data=dict(data or {}),
        )
        etag = await self._write_or_find(resource, record, None if found is None else found.etag)
        return None if etag is None else Lease(self._clock, resource, record, etag, since_s)

    async def renew(self, lease: Lease, data: Mapping[str, object] | None = None) -> None:
        """Extend the lease; `Fenced` when another has it. After `Unavailable`, renew again."""
        for _ in range(_ATTEMPTS):
            since_s = self._clock.boot_s()
            kept = lease.data if data is None else data
            record = msgspec.structs.replace(lease._record, renewals=lease._next_renewal(), data=dict(kept))
            etag = await self._swap_own(lease, record)
            if etag is not None:
                lease._renewed(record, etag, since_s)
                return
        raise Unavailable(f"the lease on {lease.resource} could not be renewed for certain", "Renew again")

    async def release(self, lease: Lease) -> None:
        """Give it back, so that the next need not wait. The token stays, so that the next one is greater."""
        lease._end()
        for _ in range(_ATTEMPTS):
            free = msgspec.structs.replace(lease._record, holder="", renewals=lease._next_renewal(), data={})
            try:
                if await self._swap_own(lease, free) is not None:
                    return
            except Fenced:
                return  # someone else has it: nothing to give back
        raise Unavailable(f"the lease on {lease.resource} could not be released", "It runs out by itself")

    async def keep(self, lease: Lease) -> None:
        """Renew in good time, again and again; return when the lease is lost or released."""
        while lease.alive():
            await self._clock.sleep(self.ttl_s / 3)
            try:
                await self.renew(lease)
            except Fenced:
                return
            except Unavailable:
                continue

    async def holders(self, prefix: str = "") -> list[Holding]:
        """Whoever holds a resource that starts with `prefix`. One that died shows until its time has run out here."""
        asked_s = self._clock.monotonic_s()
        listed = [info async for info in self._store.list(self._prefix + prefix) if info.key.endswith(_SUFFIX)]
        holdings = []
        for info in listed:
            resource = info.key[len(self._prefix) : -len(_SUFFIX)]
            seen = self._seen.get(info.key)
            found = seen.found if seen is not None and seen.found.etag == info.etag else await self._look(resource)
            if found is not None and not self._is_free(resource, found, asked_s):
                record = found.record
                holdings.append(Holding(resource, record.holder, record.token, record.data))
        return holdings

    def _key(self, resource: str) -> Key:
        return check_key(f"{self._prefix}{resource}{_SUFFIX}")

    async def _look(self, resource: str) -> _Found | None:
        key = self._key(resource)
        try:
            body, etag = await self._store.get(key)
        except NotFound:
            return None
        return _Found(_decode(key, body), etag)

    async def _look_again(self, resource: str) -> _Found | None:
        """Look after an unclear answer, which often comes with others."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return await self._look(resource)
            except Unavailable:
                continue
        return await self._look(resource)

    def _is_free(self, resource: str, found: _Found, asked_s: float) -> bool:
        """Given back, or unchanged for all of its time: from after it was first seen until before this look began."""
        key = self._key(resource)
        seen = self._seen.get(key)
        if seen is None or seen.found.etag != found.etag:
            self._seen[key] = _Seen(found, self._clock.monotonic_s())
            self._seen.move_to_end(key)
            while len(self._seen) > _SEEN_MAX:
                self._seen.popitem(last=False)
            return not found.record.holder
        return not found.record.holder or asked_s - seen.since_s >= max(self.ttl_s, found.record.ttl_ms / 1000)

    async def _write_or_find(self, resource: str, record: LeaseRecord, etag: ETag | None) -> ETag | None:
        """Create or replace. A refusal or an unclear answer is settled by reading: the nonce tells whose it is."""
        body = msgspec.json.encode(record)
        for _ in range(_ATTEMPTS):
            try:
                return await self._write(resource, body, etag)
            except (Conflict, Ambiguous) as error:
                found = await self._look_again(resource)
                if found is not None and found.record == record:
                    return found.etag
                if isinstance(error, Conflict) or (found is not None and found.etag != etag):
                    return None
                # Not landed, or not yet. The same bytes again: whichever try lands, it is this one.
        raise Unavailable(f"no clear answer about the lease on {resource}", "Try again")

    async def _swap_own(self, lease: Lease, record: LeaseRecord) -> ETag | None:
        """Replace our own record. None, with the record read anew, when it is ours but not as we knew it: try again."""
        try:
            return await self._write(lease.resource, msgspec.json.encode(record), lease._etag)
        except (Conflict, Ambiguous):
            found = await self._look_again(lease.resource)
        if found is None or found.record.nonce != lease._record.nonce or not found.record.holder:
            if found is not None and found.record == record:
                return found.etag
            lease._end()
            raise Fenced(f"the lease on {lease.resource} belongs to another", "Stop acting for it")
        if found.record == record:
            return found.etag
        lease._record, lease._etag = found.record, found.etag
        return None

    async def _write(self, resource: str, body: bytes, etag: ETag | None) -> ETag:
        key = self._key(resource)
        if etag is None:
            return await self._store.create(key, body)
        return await self._store.replace(key, body, etag)


@dataclass(frozen=True, slots=True)
class _Found:
    record: LeaseRecord
    etag: ETag


@dataclass(frozen=True, slots=True)
class _Seen:
    found: _Found
    since_s: float


def _decode(key: Key, body: bytes) -> LeaseRecord:
    try:
        record = msgspec.json.decode(body, type=LeaseRecord)
    except msgspec.MsgspecError as error:
        raise Corrupt(
            f"lease {key} cannot be read ({error})",
            "Stop all holders, then write it anew, free and with a token that was never used",
        ) from error
    if record.format != _FORMAT:
        raise Invalid(f"lease {key} has format {record.format}", "Use the version of the program that wrote it")
    return record
