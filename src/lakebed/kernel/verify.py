"""Verifying a log: every document is read, every claim of one held against the others. Nothing is changed.

Commits are the truth. They must be there without a gap, be what they say they are, and follow from one another; checkpoints must
equal the state replayed up to them, bundles the commits they copy. All damage is reported, not only the first.
"""

from __future__ import annotations

import msgspec

from lakebed.errors import Corrupt, Invalid
from lakebed.kernel.bundle import BUNDLE_SIZE, bundle_first, decode_bundle
from lakebed.kernel.checkpoint import POINTER, Pointer, checkpoint_version, decode_checkpoint, encode_checkpoint
from lakebed.kernel.documents import commit_name
from lakebed.kernel.identity import identity_of, oldest_version
from lakebed.kernel.operations import Commit
from lakebed.kernel.parts import Registry
from lakebed.kernel.state import Draft, Snapshot
from lakebed.kernel.store import NO_VERSION, LogStore, Version

_COPY = "Restore the file from a copy of the log"
_SPARE = "Remove it: the commits serve instead"


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong. `fatal` when the log cannot be opened or trusted with it, else it only makes opening slower."""

    name: str
    problem: str
    remedy: str
    fatal: bool


class Verification(msgspec.Struct, frozen=True):
    """What was looked at and what was found."""

    log: str
    oldest: int
    newest: int
    commits: int
    checkpoints: int
    bundles: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not self.findings


async def verify(store: LogStore, registry: Registry) -> Verification:
    """Look at all of the log in `store`. `Invalid` when there is none."""
    return await _Verifier(store, registry).run()


class _Verifier:
    def __init__(self, store: LogStore, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._findings: list[Finding] = []
        self._log_id: str | None = None
        self._checkpoints: dict[Version, tuple[str, Snapshot]] = {}
        self._bundles: dict[Version, list[bytes]] = {}
        self._txns: set[str] = set()
        self._timestamp = ""

    async def run(self) -> Verification:
        versions = await self._store.versions(NO_VERSION)
        names = await self._store.documents()
        if not versions and not any(checkpoint_version(name) is not None for name in names):
            raise Invalid(f"there is no log at {self._store.name}", "Check the root and the name of the log")
        await self._read_documents(names)
        oldest, last = await self._check_commits(versions)
        await self._check_pointer(names)
        checkpoints = sum(checkpoint_version(name) is not None for name in names)
        bundles = sum(bundle_first(name) is not None for name in names)
        found = tuple(self._findings)
        return Verification(self._store.name, oldest, last, len(versions), checkpoints, bundles, found)

    async def _read_documents(self, names: list[str]) -> None:
        for name in names:
            version, first = checkpoint_version(name), bundle_first(name)
            found = await self._store.get_document(name)
            if found is None:
                continue
            try:
                if version is not None:
                    snapshot, log_id = decode_checkpoint(found[0], name, self._registry)
                    self._checkpoints[version] = name, snapshot
                    self._same_log(name, log_id)
                elif first is not None:
                    self._bundles[first] = decode_bundle(found[0], name)
                elif name != POINTER:
                    self._note(name, "is not a document of a log", "Remove it if nobody knows it", fatal=False)
            except (Corrupt, Invalid) as error:
                self._note(name, error.problem, error.remedy, fatal=isinstance(error, Invalid))

    def _same_log(self, name: str, log_id: str) -> None:
        if self._log_id not in (None, log_id):
            self._note(name, f"belongs to the log {log_id}, not {self._log_id}", _SPARE, fatal=False)
        self._log_id = self._log_id or log_id

    async def _check_commits(self, versions: list[Version]) -> tuple[int, int]:
        """Read every commit from the oldest that matters, replaying as long as the state can be known."""
        base = self._base(versions)
        oldest = self._oldest_kept()
        draft: Draft | None = Draft(base, self._registry)
        there, last = set(versions), max([base.version, *versions])
        for number in range(oldest, last + 1):
            version = Version(number)
            commit = await self._commit(version, there)
            if version <= base.version:
                continue
            draft = self._replayed(draft, commit, version)
        return oldest, last

    def _oldest_kept(self) -> Version:
        """Clean-up shows a checkpoint with its floor before it deletes, so the newest one knows what may be gone."""
        newest = max(self._checkpoints, default=None)
        return Version(0) if newest is None else oldest_version(self._checkpoints[newest][1])

    def _base(self, versions: list[Version]) -> Snapshot:
        """Where replay starts: at nothing while commit 0 is there, else at the oldest good checkpoint."""
        if versions and versions[0] == 0:
            return Snapshot.empty(self._registry)
        for version in sorted(self._checkpoints):
            return self._checkpoints[version][1]
        self._note(commit_name(0), "is missing, and no good checkpoint stands for it", _COPY, fatal=True)
        return Snapshot.empty(self._registry)

    async def _commit(self, version: Version, there: set[Version]) -> Commit | None:
        name = commit_name(version)
        body = await self._store.read(version)
        if body is None:
            what = "is missing" if version not in there else "cannot be read"
            self._note(name, what, _COPY, fatal=True)
            return None
        self._check_bundled(version, body)
        try:
            commit = self._registry.codec.decode(body, version, self._store.name)
        except (Corrupt, Invalid) as error:
            self._note(name, error.problem, error.remedy, fatal=True)
            return None
        if commit.timestamp <= self._timestamp:
            self._note(name, f"is not younger than the commit before it ({self._timestamp})", _COPY, fatal=True)
        if commit.txn_id in self._txns:
            self._note(name, f"repeats the transaction {commit.txn_id} of an earlier commit", _COPY, fatal=True)
        self._txns.add(commit.txn_id)
        self._timestamp = max(commit.timestamp, self._timestamp)
        return commit

    def _check_bundled(self, version: Version, body: bytes) -> None:
        first = Version(version - version % BUNDLE_SIZE)
        if first in self._bundles and self._bundles[first][version - first] != body:
            name = f"{first:020d}.bundle.json"
            self._note(name, f"holds another commit {version} than {commit_name(version)}", _SPARE, fatal=True)

    def _replayed(self, draft: Draft | None, commit: Commit | None, version: Version) -> Draft | None:
        """The draft after `commit`; None once the state is not known, until a good checkpoint tells it again."""
        name, told = self._checkpoints.get(version, ("", None))
        snapshot: Snapshot | None = None
        if draft is not None and commit is not None:
            snapshot = self._applied(draft, commit, version, told is not None or version == 0)
            draft = draft if snapshot is None else Draft(snapshot, self._registry)
            if not self._follows:
                draft = None
        else:
            draft = None
        if told is not None and snapshot is not None and not _equal(told, snapshot):
            self._note(name, "is not the state that the commits up to it give", _SPARE, fatal=True)
        if draft is None and told is not None:
            return Draft(told, self._registry)
        return draft

    def _applied(self, draft: Draft, commit: Commit, version: Version, freeze: bool) -> Snapshot | None:
        self._follows = True
        try:
            draft.replay([commit])
            snapshot = draft.freeze(version, commit.timestamp) if freeze else None
            if version == 0 and snapshot is not None:
                self._same_log(commit_name(0), identity_of(snapshot, commit_name(0)).log_id)
        except (Invalid, Corrupt) as error:
            self._follows = False
            problem = f"does not follow from the commits before it: {error.problem}"
            self._note(commit_name(version), problem, _COPY, fatal=True)
            return None
        return snapshot

    async def _check_pointer(self, names: list[str]) -> None:
        found = await self._store.get_document(POINTER) if POINTER in names else None
        if found is None:
            return
        try:
            pointer = msgspec.json.decode(found[0], type=Pointer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._note(
                POINTER, f"cannot be read ({error})", "Remove it: the next checkpoint writes it anew", fatal=False
            )
            return
        if pointer.name not in names:
            self._note(POINTER, f"points to {pointer.name}, which is missing", "Remove the pointer", fatal=False)

    def _note(self, name: str, problem: str, remedy: str, *, fatal: bool) -> None:
        self._findings.append(
            Finding(name, problem.removeprefix(f"{self._store.name}/").removeprefix(f"{name} "), remedy, fatal)
        )


def _equal(one: Snapshot, other: Snapshot) -> bool:
    return one.timestamp == other.timestamp and encode_checkpoint(one, "") == encode_checkpoint(other, "")
