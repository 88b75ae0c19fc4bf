"""Leases in Oxia: a lease is an ephemeral record, which the servers remove when its holder's session is not renewed.

Invariant: a token is drawn from a lasting counter while the record is already held, and counts only if the record is
still held after that; so of two leases on one resource the later has the greater token. As everywhere, a lease elects and
only its token, compared in the log, protects.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import NoReturn
from urllib.parse import quote, unquote

import msgspec

from lakebed.clock import Clock
from lakebed.errors import Ambiguous, Conflict, Corrupt, Exists, Fenced, Invalid, Unavailable
from lakebed.objects.keys import check_key
from lakebed.objects.leases import Holding, Lease, LeaseRecord
from lakebed.objects.oxia_client import OXIA_ABSENT, OxiaClient, OxiaRecord
from lakebed.objects.port import ETag

SESSION_S_MIN, SESSION_S_MAX = 2.0, 300.0
"""What Oxia's servers accept as the time of a session."""

_FORMAT = 1
_ATTEMPTS = 8
_AFTER_ALL_NAMES = "\x7f"
_TAKING = 0
"""The token of a record that is held but has no token yet."""


class OxiaLeases:
    """The leases under `prefix`, with the methods of `Leases`. All of them lie in one shard."""

    def __init__(self, client: OxiaClient, clock: Clock, ttl_s: float = 10.0, prefix: str = "leases/") -> None:
        if not SESSION_S_MIN <= ttl_s <= SESSION_S_MAX:
            problem = f"Oxia keeps no session of {ttl_s} s"
            raise Invalid(problem, f"Choose a lease time from {SESSION_S_MIN:.0f} to {SESSION_S_MAX:.0f} s")
        self.ttl_s = ttl_s
        self._client = client
        self._clock = clock
        self._held, self._tokens = f"{prefix.strip('/')}/held", f"{prefix.strip('/')}/tokens"
        self._sessions: dict[str, int] = {}

    async def acquire(
        self, resource: str, holder: str, data: Mapping[str, object] | None = None, dead_token: int | None = None
    ) -> Lease | None:
        """Try once. None when another holds it, or won it just now, or has died and its session is not over yet.

        The holder with `dead_token` is known to be dead: its session is not waited for.
        """
        if not holder:
            raise Invalid("a lease needs a holder", "Give the process a name")
        found = await self._look(resource)
        if found is not None and not await self._bury(found, dead_token):
            return None
        since_s = self._clock.boot_s()
        record = LeaseRecord(
            format=_FORMAT,
            holder=holder,
            token=_TAKING,
            ttl_ms=int(self.ttl_s * 1000),
            renewals=0,
            nonce=str(self._clock.uuid7()),
            data=dict(data or {}),
        )
        session_id = await self._client.open_session(self._held, self.ttl_s, holder)
        self._sessions[record.nonce] = session_id
        lease: Lease | None = None
        try:
            lease = await self._take(resource, record, since_s)
        finally:
            if lease is None:
                await self._leave(record.nonce)
        return lease

    async def renew(self, lease: Lease, data: Mapping[str, object] | None = None) -> None:
        """Extend the lease; `Fenced` when it is lost. After `Unavailable` it may be renewed again while it lives."""
        since_s = self._clock.boot_s()
        session_id = self._sessions.get(lease._record.nonce)
        if session_id is None:
            self._lose(lease)
        try:
            await self._client.keep_alive(self._held, session_id)
        except Unavailable:
            await self._reread(lease)
            raise
        # Only a write proves that the server which noted the heartbeat still leads: heartbeats are not replicated.
        for _ in range(_ATTEMPTS):
            old = lease._record
            new = msgspec.structs.replace(old, renewals=old.renewals + 1, data=dict(old.data if data is None else data))
            version = await self._put(lease.resource, new, int(lease._etag))
            if version is not None:
                lease._renewed(new, ETag(str(version)), since_s)
                return
            await self._reread(lease)  # ours, if an earlier renewal landed after we had given it up
        raise Unavailable(f"the lease on {lease.resource} could not be renewed for certain", "Renew again")

    async def release(self, lease: Lease) -> None:
        """Give it back, so that the next need not wait."""
        lease._end()
        session_id = self._sessions.pop(lease._record.nonce, None)
        if session_id is None:
            return
        try:
            await self._client.close_session(self._held, session_id)
        except Unavailable:
            found = await self._look(lease.resource)
            if found is not None and _decode(found).nonce == lease._record.nonce:
                raise

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
        """Whoever holds a resource that starts with `prefix`. One that died is shown until its session is over."""
        first = f"{self._held}/{quote(prefix, safe='')}"
        records = await self._client.scan(first, first + _AFTER_ALL_NAMES, partition=self._held)
        found = [(unquote(record.key[len(self._held) + 1 :]), _decode(record)) for record in records]
        return [Holding(name, one.holder, one.token, one.data) for name, one in found if one.token != _TAKING]

    async def _bury(self, found: OxiaRecord, dead_token: int | None) -> bool:
        """Remove the record if it is still that of the dead holder."""
        if _decode(found).token != dead_token:
            return False
        with suppress(Conflict):  # it was not the dead one's any more, or another buried it: who comes first wins
            await self._client.delete(found.key, partition=self._held, expected=found.version_id)
        return True

    async def _take(self, resource: str, record: LeaseRecord, since_s: float) -> Lease | None:
        """Hold the record first, then number it: see the invariant."""
        version = await self._put(resource, record, OXIA_ABSENT)
        if version is None:
            return None
        numbered = msgspec.structs.replace(record, token=await self._draw_token(resource))
        version = await self._put(resource, numbered, version)
        return None if version is None else Lease(self._clock, resource, numbered, ETag(str(version)), since_s)

    async def _put(self, resource: str, record: LeaseRecord, expected: int) -> int | None:
        """Write our record under its session; None when it is not ours to write. Doubts are settled by reading."""
        key, session_id = self._key(self._held, resource), self._sessions[record.nonce]
        for _ in range(_ATTEMPTS):
            try:
                return await self._client.put(
                    key, msgspec.json.encode(record), partition=self._held, expected=expected, session_id=session_id
                )
            except Fenced:
                return None
            except (Conflict, Ambiguous) as doubt:
                found = await self._look(resource)
                if found is not None and _decode(found) == record:
                    return found.version_id
                if isinstance(doubt, Conflict):
                    return None
        raise Unavailable(f"no clear answer about the lease on {resource}", "Try again")

    async def _draw_token(self, resource: str) -> int:
        key = self._key(self._tokens, resource)
        for _ in range(_ATTEMPTS):
            found = await self._client.get(key, partition=self._held)
            token, expected = (1, OXIA_ABSENT) if found is None else (int(found.value) + 1, found.version_id)
            # What is drawn in vain leaves a gap, which does no harm.
            with suppress(Exists, Conflict, Ambiguous):
                await self._client.put(key, b"%d" % token, partition=self._held, expected=expected)
                return token
        raise Unavailable(f"no token for the lease on {resource} could be drawn", "Try again")

    async def _leave(self, nonce: str) -> None:
        session_id = self._sessions.pop(nonce)
        with suppress(Unavailable):  # it ends by itself when its time is over
            await self._client.close_session(self._held, session_id)

    async def _reread(self, lease: Lease) -> None:
        """Know our record as it is; `Fenced` when it is not ours any more."""
        found = await self._look(lease.resource)
        record = None if found is None else _decode(found)
        if found is None or record is None or record.nonce != lease._record.nonce:
            self._lose(lease)
        lease._record, lease._etag = record, ETag(str(found.version_id))

    def _lose(self, lease: Lease) -> NoReturn:
        lease._end()
        self._sessions.pop(lease._record.nonce, None)
        raise Fenced(f"the lease on {lease.resource} is lost", "Stop acting for it")

    async def _look(self, resource: str) -> OxiaRecord | None:
        return await self._client.get(self._key(self._held, resource), partition=self._held)

    def _key(self, folder: str, resource: str) -> str:
        """One name per resource, whatever slashes it has, so that one range holds them all."""
        return f"{folder}/{quote(check_key(resource), safe='')}"


def _decode(record: OxiaRecord) -> LeaseRecord:
    try:
        found = msgspec.json.decode(record.value, type=LeaseRecord)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"lease {record.key} cannot be read ({error})", "Stop all holders and delete it") from error
    if found.format != _FORMAT:
        raise Invalid(f"lease {record.key} has format {found.format}", "Use the version of the program that wrote it")
    return found
