"""What commit 0 says of a log, and the floor below which numbers are of the past."""

from __future__ import annotations

import msgspec

from lakebed.errors import Corrupt, Invalid
from lakebed.kernel.operations import Operation, Put
from lakebed.kernel.state import Snapshot
from lakebed.kernel.store import Version

FORMAT = 1
IDENTITY_KEY = "kernel/identity"
FLOOR_KEY = "kernel/floor"


class Identity(msgspec.Struct, frozen=True):
    """Which log this is. `features` grows by commits: a kind of operation is used only after its feature is in here."""

    log_id: str
    root_id: str
    name: str
    format: int = FORMAT
    features: tuple[str, ...] = ()


class Floor(msgspec.Struct, frozen=True):
    """Nobody may believe a success or an absence below `version`; commits below `deleted_below` may be gone."""

    version: int
    deleted_below: int


NO_FLOOR = Floor(0, 0)


def birth(identity: Identity) -> list[Operation]:
    """The operations of commit 0."""
    return [Put.of(IDENTITY_KEY, identity)]


def identity_of(snapshot: Snapshot, name: str) -> Identity:
    """The identity of the log called `name`; refuses what is no log of ours, or of a format from the future."""
    entry = snapshot.get(IDENTITY_KEY)
    if entry is None:
        raise Corrupt(f"{name} has no identity in its first commit", "This is not a Lakebed log: check the root")
    try:
        form = entry.decode(_FormatOnly).format
        if form > FORMAT:
            raise Invalid(f"{name} has format {form}; this program knows up to {FORMAT}", "Use a newer Lakebed")
        return entry.decode(Identity)
    except msgspec.DecodeError as error:
        raise Corrupt(f"{name} has an identity that cannot be read ({error})", "Check the root") from error


def check_root(identity: Identity, root_id: str | None, name: str) -> None:
    """Refuse the log called `name` when it is another root's: two roots on one log would take each other's topics for theirs."""
    if root_id is not None and identity.root_id != root_id:
        raise Invalid(
            f"{name} belongs to the root {identity.root_id}, not to {root_id}",
            "Give every root logs of its own; with Oxia, a namespace of its own (log_store.oxia_namespace)",
        )


def floor_of(snapshot: Snapshot) -> Floor:
    """The floor that clean-up has committed, if it ever ran."""
    entry = snapshot.get(FLOOR_KEY)
    return entry.decode(Floor) if entry else NO_FLOOR


def oldest_version(snapshot: Snapshot) -> Version:
    """The oldest version that can still be read."""
    return Version(floor_of(snapshot).deleted_below)


class _FormatOnly(msgspec.Struct):
    format: int
