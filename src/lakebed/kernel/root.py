"""A root: one folder or bucket prefix that holds everything, and the file that says so.

Invariant: `lakebed.json` is created once, by whoever is first, and never changed. Nothing is ever created in a place that holds
files of someone else.
"""

from __future__ import annotations

import msgspec

from lakebed.clock import Clock, iso_timestamp
from lakebed.errors import Ambiguous, Corrupt, Exists, Invalid, NotFound, Unavailable
from lakebed.kernel.identity import Identity
from lakebed.kernel.paths import CLUSTER_LOG, DOMAINS_MAX, LAKE_LOG, ROOT_FILE, domain_log
from lakebed.objects import ObjectStore

FORMAT = 1
_TRIES = 20
_RETRY_S = 0.05


class Root(msgspec.Struct, frozen=True):
    """What `lakebed.json` says."""

    format: int
    root_id: str
    domains: int
    created: str

    def log_names(self) -> list[str]:
        """All logs of the root."""
        return [CLUSTER_LOG, *(domain_log(domain) for domain in range(self.domains)), LAKE_LOG]

    def identity(self, name: str, clock: Clock) -> Identity:
        """A fresh identity for the log `name` of this root, to create it with."""
        return Identity(str(clock.uuid7()), self.root_id, name)


async def open_root(objects: ObjectStore, *, create: bool, domains: int = 1, clock: Clock) -> Root:
    """The root in `objects`; with `create`, make it (with so many domains) when the place is empty."""
    for _ in range(_TRIES):
        root = await _found(objects)
        if root is not None:
            return root
        if await _holds_something(objects) and await _found(objects) is None:
            raise Invalid(
                f"{objects!r} holds files but no {ROOT_FILE}: it is not a Lakebed root",
                "Give the folder of a root, or an empty one to create a root in",
            )
        if not create:
            raise NotFound(f"there is no root at {objects!r}", "Check --root, or create one with 'lakebed up'")
        await _create(objects, domains, clock)
    raise Unavailable(f"no root could be created at {objects!r}", "Check that the store can be written, then retry")


async def _found(objects: ObjectStore) -> Root | None:
    try:
        body, _ = await objects.get(ROOT_FILE)
    except NotFound:
        return None
    try:
        form = msgspec.json.decode(body, type=_FormatOnly).format
        if form > FORMAT:
            raise Invalid(f"{ROOT_FILE} has format {form}; this program knows up to {FORMAT}", "Use a newer Lakebed")
        return msgspec.json.decode(body, type=Root)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"{ROOT_FILE} cannot be read ({error})", "Restore it from a copy; it never changes") from error


async def _holds_something(objects: ObjectStore) -> bool:
    async for _ in objects.list(limit=1):
        return True
    return False


async def _create(objects: ObjectStore, domains: int, clock: Clock) -> None:
    """Losing the race for it is as good as winning."""
    if not 1 <= domains <= DOMAINS_MAX:
        raise Invalid(f"a root cannot have {domains} domains", f"Give a number from 1 to {DOMAINS_MAX}")
    root = Root(FORMAT, str(clock.uuid7()), domains, iso_timestamp(clock.now_ms()))
    try:
        await objects.create(ROOT_FILE, msgspec.json.encode(root))
    except (Exists, Ambiguous):
        return
    except Unavailable:
        await clock.sleep(_RETRY_S)


class _FormatOnly(msgspec.Struct):
    format: int
