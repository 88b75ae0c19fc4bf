"""Verification: read everything a log has, trust nothing of it, and say what is wrong.

The commits are the truth. Checkpoints and bundles are held against what the commits themselves lead to, so one that lies with
a right checksum is found too. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from lakebed.clock import unix_ms
from lakebed.errors import Corrupt, Invalid, LakebedError
from lakebed.kernel.bundle import BUNDLE_SIZE, bundle_first, decode_bundle
from lakebed.kernel.checkpoint import POINTER, Pointer, checkpoint_version, decode_checkpoint, encode_checkpoint
from lakebed.kernel.documents import commit_name
from lakebed.kernel.identity import Identity, identity_of, oldest_version
from lakebed.kernel.operations import Commit
from lakebed.kernel.parts import Registry
from lakebed.kernel.replay import replay_run
from lakebed.kernel.state import Draft, Snapshot
from lakebed.kernel.store import NO_VERSION, LogStore, Version

Severity = Literal["error", "warning", "note"]

_FROM_A_COPY = "Restore the file from a copy of the log"
_SPARE = "Remove it: an older checkpoint and the commits after it serve instead"


class Finding(msgspec.Struct, frozen=True):
    """One thing that is not as it should be.

    With an `error` the log cannot be opened or trusted, with a `warning` it is only slower, and a `note` mends itself.
    """

    severity: Severity
    name: str
    problem: str
    remedy: str


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
        return all(finding.severity == "note" for finding in self.findings)


async def verify(store: LogStore, registry: Registry) -> Verification:
    """Look at all of the log in `store`; `Invalid` when there is none. Best done while nobody cleans up."""
    return await _Verifier(store, registry).run()


class _Verifier:
    def __init__(self, store: LogStore, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._findings: list[Finding] = []
        self._checkpoints: dict[Version, list[str]] = {}
        self._sound: dict[str, Snapshot] = {}
        self._log_ids: dict[str, str] = {}
        self._bundles: dict[Version, str] = {}
        self._seen: dict[str, int] = {}
        self._missing: set[int] = set()
        self._timestamp = ""
        self._state: Snapshot | None = None
        """The state after the commits so far; None where damage has made it unknown."""

    async def run(self) -> Verification:
        versions = await self._store.versions(NO_VERSION)
        documents = await self._store.documents()
        self._sort(documents)
        if not versions and not self._checkpoints:
            raise Invalid(f"there is no log at {self._store.name}", "Check the root and the name of the log")
        await self._read_checkpoints()
        kept_from = self._oldest_kept()
        self._leftovers(versions, kept_from)
        last = await self._walk([version for version in versions if version >= kept_from], kept_from)
        await self._verify_bundles(kept_from)
        if POINTER in documents:
            await self._verify_pointer()
        elif self._checkpoints:
            self._find("note", POINTER, "is missing", "The next checkpoint writes it; until then opening takes longer")
        findings = tuple(sorted(self._findings, key=lambda finding: finding.name))
        checkpoints = sum(map(len, self._checkpoints.values()))
        return Verification(self._store.name, kept_from, last, len(versions), checkpoints, len(self._bundles), findings)

    def _sort(self, documents: Sequence[str]) -> None:
        for name in documents:
            checkpoint, bundle = checkpoint_version(name), bundle_first(name)
            if checkpoint is not None:
                self._checkpoints.setdefault(checkpoint, []).append(name)
            elif bundle is not None:
                self._bundles[bundle] = name
            elif name != POINTER:
                self._find("warning", name, "is not a document of a log", "Move it elsewhere")

    async def _read_checkpoints(self) -> None:
        for names in self._checkpoints.values():
            for name in names:
                found = await self._store.get_document(name)
                if found is None:
                    continue
                try:
                    self._sound[name], self._log_ids[name] = decode_checkpoint(found[0], name, self._registry)
                except (Corrupt, Invalid) as error:
                    self._report(name, error, "warning" if isinstance(error, Corrupt) else "error")

    def _oldest_kept(self) -> Version:
        """What the newest sound checkpoint says of the floor. The commits after it cannot have deleted anything below it."""
        newest = max(self._sound.values(), key=lambda snapshot: snapshot.version, default=None)
        return Version(0) if newest is None else oldest_version(newest)

    def _leftovers(self, versions: Sequence[Version], kept_from: Version) -> None:
        what, remedy = "lies below the floor and does not count", "The next clean-up deletes it"
        for version in versions:
            if version < kept_from:
                self._find("note", commit_name(version), what, remedy)
        for version, names in self._checkpoints.items():
            for name in names:
                if version < kept_from:
                    self._find("note", name, what, remedy)

    async def _walk(self, versions: Sequence[Version], kept_from: Version) -> Version:
        """Replay from the oldest kept commit on, and hold every checkpoint against the state when its version is reached."""
        self._state = Snapshot.empty(self._registry) if kept_from == 0 else self._base(kept_from)
        last = max([*versions, *self._checkpoints])
        present = set(versions)
        for first in range(kept_from, last + 1, BUNDLE_SIZE):
            numbers = range(first, min(first + BUNDLE_SIZE, last + 1))
            bodies = await self._bodies([number for number in numbers if number in present])
            for number in numbers:
                self._step(Version(number), bodies.get(number))
        if self._state is not None:
            try:
                identity_of(self._state, self._store.name)
            except (Corrupt, Invalid) as error:
                self._report(commit_name(0), error)
        return last

    def _base(self, kept_from: Version) -> Snapshot | None:
        """The state before the oldest kept commit is gone; the checkpoint of that commit stands for it."""
        for name in self._checkpoints.get(kept_from, []):
            if name in self._sound:
                return self._sound[name]
        self._find(
            "error",
            f"{kept_from:020d}.checkpoint.json",
            "is missing or damaged, and older commits are deleted",
            _FROM_A_COPY,
        )
        return None

    async def _bodies(self, numbers: Sequence[int]) -> dict[int, bytes]:
        bodies: dict[int, bytes] = {}
        while numbers:
            found = await self._store.read_many(Version(numbers[0]), numbers[-1] - numbers[0] + 1)
            bodies.update(enumerate(found, numbers[0]))
            numbers = [number for number in numbers[1:] if number not in bodies]
        return bodies

    def _step(self, version: Version, body: bytes | None) -> None:
        commit = self._decoded(version, body)
        if commit is None:
            self._state = None
        else:
            self._check_time(commit)
            self._check_ids(commit)
            if self._state is not None and self._state.version == version:
                pass  # the base: its checkpoint already holds this commit
            elif self._state is not None:
                self._state = self._replayed(self._state, body or b"", version)
        for name in self._checkpoints.get(version, []):
            self._compare(name)

    def _decoded(self, version: Version, body: bytes | None) -> Commit | None:
        if body is None:
            self._missing.add(version)
            self._find("error", commit_name(version), "is missing", _FROM_A_COPY)
            return None
        try:
            return self._registry.codec.decode(body, version, self._store.name)
        except (Corrupt, Invalid) as error:
            self._report(commit_name(version), error)
            return None

    def _check_time(self, commit: Commit) -> None:
        try:
            unix_ms(commit.timestamp)
        except ValueError:
            self._find("error", commit_name(commit.version), f"has no timestamp but {commit.timestamp!r}", _FROM_A_COPY)
            return
        if commit.timestamp <= self._timestamp:
            what = f"is not younger than the commit before it ({self._timestamp})"
            self._find("error", commit_name(commit.version), what, _FROM_A_COPY)
        self._timestamp = max(self._timestamp, commit.timestamp)

    def _check_ids(self, commit: Commit) -> None:
        for txn_id in {commit.txn_id, *(operation.txn for operation in commit.operations)} - {""}:
            first = self._seen.setdefault(txn_id, commit.version)
            if first != commit.version:
                what = f"repeats the transaction {txn_id} of {commit_name(first)}"
                self._find("error", commit_name(commit.version), what, "Find out which writer gave one id twice")

    def _replayed(self, state: Snapshot, body: bytes, version: Version) -> Snapshot | None:
        draft = Draft(state, self._registry)
        try:
            commit = replay_run(draft, [body], version, self._store, self._registry)[0]
        except LakebedError as error:
            self._report(commit_name(version), error)
            return None
        return draft.freeze(version, commit.timestamp)

    def _compare(self, name: str) -> None:
        sound = self._sound.get(name)
        if sound is None:
            return
        if self._state is None:
            self._state = sound  # behind damage, the next sound checkpoint is the best there is
        elif encode_checkpoint(sound, "") != encode_checkpoint(self._state, ""):
            self._find("error", name, "is not the state that the commits lead to", _SPARE)
        identity = self._identity()
        if identity is not None and identity.log_id != self._log_ids[name]:
            what = f"belongs to the log {self._log_ids[name]}, not {identity.log_id}"
            self._find("error", name, what, _SPARE)

    def _identity(self) -> Identity | None:
        try:
            return None if self._state is None else identity_of(self._state, self._store.name)
        except (Corrupt, Invalid):
            return None

    async def _verify_bundles(self, kept_from: Version) -> None:
        for first, name in sorted(self._bundles.items()):
            if first + BUNDLE_SIZE <= kept_from:
                self._find("note", name, "lies below the floor and does not count", "The next clean-up deletes it")
                continue
            found = await self._store.get_document(name)
            if found is None:
                continue
            try:
                bundled = decode_bundle(found[0], name)
            except Corrupt as error:
                self._report(name, error, "warning")
                continue
            await self._verify_bundle(name, first, bundled, kept_from)

    async def _verify_bundle(self, name: str, first: Version, bundled: list[bytes], kept_from: Version) -> None:
        numbers = [
            first + at for at in range(BUNDLE_SIZE) if first + at >= kept_from and first + at not in self._missing
        ]
        singles = await self._bodies(numbers)
        for number in numbers:
            if singles.get(number) != bundled[number - first]:
                what = f"does not hold {commit_name(number)} as it is"
                self._find("error", name, what, "Remove it: the single commits serve instead")
                return

    async def _verify_pointer(self) -> None:
        found = await self._store.get_document(POINTER)
        if found is None:
            return
        remedy = "Remove it: the next checkpoint writes it anew"
        try:
            pointer = msgspec.json.decode(found[0], type=Pointer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._find("warning", POINTER, f"cannot be read ({error})", remedy)
            return
        if checkpoint_version(pointer.name) != pointer.version:
            self._find("warning", POINTER, f"names {pointer.name!r} for version {pointer.version}", remedy)
        elif await self._store.get_document(pointer.name) is None:
            self._find("warning", POINTER, f"names {pointer.name}, which is missing", remedy)

    def _report(self, name: str, error: LakebedError, severity: Severity = "error") -> None:
        self._find(severity, name, error.problem, error.remedy)

    def _find(self, severity: Severity, name: str, problem: str, remedy: str) -> None:
        bare = problem.removeprefix(f"{self._store.name}/").removeprefix(f"{name} ")
        self._findings.append(Finding(severity, name, bare, remedy))
