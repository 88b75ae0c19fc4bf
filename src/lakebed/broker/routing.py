"""Which brokers a client is told about, and which of them is called the leader of a stream.

Any broker can serve anything: a leader is where a stream's tail cache is warm and its producers meet, never who is right.
Rendezvous hashing spreads streams evenly, and a broker that comes or goes moves only its own share.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import msgspec

from lakebed.config import Address, parse_address
from lakebed.errors import Invalid

_CHOICES_MAX = 200_000


class Member(msgspec.Struct, frozen=True):
    """A broker of this root, as it registered itself."""

    id: int
    zone: str
    rack: str | None
    build: str
    listeners: Mapping[str, Address]

    def address(self, listener: str) -> Address:
        """Where clients of `listener` reach it; its first listener when it has none of that name."""
        return self.listeners.get(listener) or next(iter(self.listeners.values()))


def named_addresses(text: str | None, place: str) -> dict[str, Address]:
    """`INSIDE=127.0.0.1:9093,OUTSIDE=broker.example.com:9094`, as a setting holds it."""
    found: dict[str, Address] = {}
    for part in (text or "").split(","):
        name, equals, address = (piece.strip() for piece in part.partition("="))
        if not part.strip():
            continue
        try:
            if not equals or not name or name in found:
                raise ValueError("is not NAME=HOST:PORT with a name of its own")
            found[name] = parse_address(address)
        except ValueError as error:
            remedy = "Write such as INSIDE=127.0.0.1:9093,OUTSIDE=127.0.0.1:9094"
            raise Invalid(f"{place}: {part.strip()!r} {error}", remedy) from None
    return found


def zone_of(client_id: str | None) -> str | None:
    """The zone that a client of `zone_id=a,key=value` names."""
    if not client_id or "zone_id" not in client_id:
        return None
    pairs = (part.partition("=") for part in client_id.split(","))
    return next((value.strip() or None for name, _, value in pairs if name.strip() == "zone_id"), None)


def members_for(client_id: str | None, members: tuple[Member, ...]) -> tuple[Member, ...]:
    """The members of the client's zone, or all when it names none or there are none in it."""
    zone = zone_of(client_id)
    if zone is None:
        return members
    return tuple(member for member in members if member.zone == zone) or members


class Affinity:
    """Remembers which member leads which stream, until the members change."""

    def __init__(self) -> None:
        self._choices: dict[tuple[tuple[int, ...], int], int] = {}

    def leader(self, stream: int, members: tuple[Member, ...]) -> int:
        """The id of the member that leads `stream` among `members`, the same for everyone who asks."""
        if len(members) == 1:
            return members[0].id
        ids = tuple(member.id for member in members)
        found = self._choices.get((ids, stream))
        if found is None:
            if len(self._choices) >= _CHOICES_MAX:
                self._choices.clear()
            found = max(ids, key=lambda member: _weight(stream, member))
            self._choices[ids, stream] = found
        return found


def _weight(stream: int, member: int) -> bytes:
    return blake2b(b"%d/%d" % (stream, member), digest_size=8).digest()
