"""A log in a folder: commits are files that appear whole and synced, or not at all."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import TypeVar

from lakebed.clock import Clock, SystemClock, within
from lakebed.config import KernelSettings
from lakebed.errors import Ambiguous, Exists, Unavailable
from lakebed.kernel.documents import Documents, commit_name, is_commit_name
from lakebed.kernel.inotify import drain, watch_folder
from lakebed.kernel.journal import Journal
from lakebed.kernel.journal_recovery import make_journal, make_whole, open_journal
from lakebed.kernel.pace import Pace
from lakebed.kernel.store import NO_VERSION, Version
from lakebed.kernel.turnstile import Turnstile
from lakebed.kernel.worker import Worker
from lakebed.objects import Files, ObjectStore

T = TypeVar("T")

_SLOW_POLL_S = 1.0
"""Between looks when the folder cannot be watched, and as a net below inotify when it can."""
_WHOLE_LOOK_S, _WHOLE_LOOKS = 0.02, 1500


class FileLogStore(Documents):
    """Commits by `Files` (anonymous file, sync, link, sync the folder), in a busy log by its journal; documents by the object
    store of the same root.

    While commits are quick, the event loop waits for them itself; otherwise a thread does.
    """

    def __init__(
        self,
        root: Path,
        prefix: str,
        objects: ObjectStore,
        files: Files | None = None,
        clock: Clock | None = None,
        settings: KernelSettings | None = None,
    ) -> None:
        super().__init__(objects, prefix)
        self.name = str(root / self.prefix)
        self._folder = root / self.prefix
        self._own_files = files is None
        self._files = files or Files(root)
        self._writer = Worker("log writer", lambda: self._files.prepare(self._folder))
        self._reader = Worker("log reader")
        self._watched: int | None = None
        self._clock = clock or SystemClock()
        settings = settings or KernelSettings()
        self._turnstile = Turnstile(self._folder, self._clock, settings.turn_wait_s)
        self._pace = Pace(settings.quick_commit_s)
        self._news = asyncio.Event()
        self._made = False
        self._durable = int(NO_VERSION)
        """The last commit that this process has made."""
        self._doubtful = int(NO_VERSION)
        """The last commit that may have its name without that being synced. Whoever finds it there takes it for durable."""
        self._journal: Journal | None = None
        self._journal_bytes = int(settings.journal_bytes)
        self._unjournaled_left = settings.journal_after if settings.journal_bytes else -1
        """So many more commits make the log a busy one; -1 when it is or nobody asks."""
        self._whole = False

    async def create(self, version: Version, body: bytes) -> None:
        await self._turnstile.passed()
        if not self._whole:
            await self._made_whole()
        if self._unjournaled_left == 0 and version > 0:
            await self._begin_journal()
        if not self._pace.is_quick:
            await self._done(self._writer.call(self._create, version, body))
            return
        try:
            self._create(version, body)
        except OSError as error:
            raise self._unavailable(error) from error

    async def read(self, version: Version) -> bytes | None:
        found = await self.read_many(version, 1)
        return found[0] if found else None

    async def read_many(self, first: Version, count: int) -> list[bytes]:
        if not self._whole:
            await self._made_whole()
        return await self._done(self._reader.call(self._read_many, first, count))

    async def versions(self, after: Version) -> list[Version]:
        if not self._whole:
            await self._made_whole()
        return await self._done(self._reader.call(self._versions, after))

    async def delete_commits(self, below: Version) -> int:
        return await self._done(self._reader.call(self._delete_commits, below))

    async def documents(self) -> list[str]:
        return await self._done(self._reader.call(self._documents))

    async def wait(self, version: Version, timeout_s: float) -> None:
        self._start_watching()
        self._news.clear()
        if await self.read(version) is not None:
            return
        try:
            await within(min(timeout_s, _SLOW_POLL_S), self._news.wait())
        except TimeoutError:
            return

    def turn(self) -> AbstractAsyncContextManager[None]:
        return self._turnstile.held()

    async def close(self) -> None:
        if self._watched is not None:
            asyncio.get_running_loop().remove_reader(self._watched)
            os.close(self._watched)
            self._watched = None
        self._writer.stop()
        self._reader.stop()
        self._turnstile.close()
        if self._journal is not None:
            self._journal.close()
        if self._own_files:
            self._files.close()

    async def _made_whole(self) -> None:
        """Before anything is read or written: what a power cut took from the folder comes back from its journal."""
        for _ in range(_WHOLE_LOOKS):
            if await self._done(self._reader.call(self._find_journal)):
                self._whole = True
                return
            await self._clock.sleep(_WHOLE_LOOK_S)
        raise Unavailable(
            f"{self.name} has to be made whole after a power cut, and another process holds its journal",
            "Retry, or stop the process that hangs",
        )

    async def _begin_journal(self) -> None:
        self._unjournaled_left = -1
        if self._journal is None:
            with suppress(OSError, Ambiguous):  # without one, commits are slower
                await self._reader.call(make_journal, self._files, self._folder, self._journal_bytes)
            await self._made_whole()

    def _find_journal(self) -> bool:
        """Whether the folder is whole, with a journal or without."""
        if self._journal is None:
            self._journal = open_journal(self._files, self._folder, self._create_synced)
        return self._journal is None or make_whole(self._files, self._folder, self._journal)

    async def _done(self, called: Awaitable[T]) -> T:
        try:
            return await called
        except OSError as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: OSError) -> Unavailable:
        return Unavailable(f"{self.name}: {error}", "Check that the disk is there, writable and not full")

    def _create(self, version: Version, body: bytes) -> None:
        if not self._made:
            self._files.make_folder(self._folder)
            self._made = True
        if self._unjournaled_left > 0:
            self._unjournaled_left -= 1
        began_s = self._clock.monotonic_s()
        try:
            if self._doubtful == version:
                self._files.sync_folder(self._folder)
            if self._journal is None:
                self._create_synced(version, body)
            else:
                self._journal.create(version, body)
            self._durable = version
        except FileExistsError as taken:
            raise Exists(f"{self.name}: version {version} is taken", "Read it and try the next number") from taken
        except (OSError, Ambiguous) as error:
            self._doubtful = version
            raise Ambiguous(
                f"{self.name}: version {version} may not be durable: {error}", "Look before retrying"
            ) from error
        finally:
            self._pace.took(self._clock.monotonic_s() - began_s)

    def _create_synced(self, version: int, body: bytes) -> None:
        # The one before may be another's, who has not synced its name yet: this one must not outlive it.
        if self._durable != version - 1:
            self._files.sync_folder(self._folder)
        self._files.create_synced(self._folder, commit_name(version), body)

    def _read_many(self, first: Version, count: int) -> list[bytes]:
        bodies: list[bytes] = []
        try:
            for version in range(first, first + count):
                bodies.append(self._files.read(self._folder / commit_name(version)))
        except FileNotFoundError:
            return bodies
        return bodies

    def _versions(self, after: Version) -> list[Version]:
        floor = commit_name(after) if after >= 0 else ""
        return sorted(Version(int(name[:20])) for name in self._names() if name > floor and is_commit_name(name))

    def _delete_commits(self, below: Version) -> int:
        ceiling = commit_name(below)
        gone = [name for name in self._names() if name < ceiling and is_commit_name(name)]
        for name in gone:
            self._files.unlink(self._folder / name)
        return len(gone)

    def _documents(self) -> list[str]:
        return sorted(name for name in self._names() if not name.startswith(".") and not is_commit_name(name))

    def _names(self) -> list[str]:
        """All names, in no order: sorting a folder of many commits costs more than reading it."""
        try:
            return os.listdir(self._folder)
        except FileNotFoundError:
            return []

    def _start_watching(self) -> None:
        if self._watched is None and self._folder.is_dir():
            self._watched = watch_folder(self._folder)
            if self._watched is not None:
                asyncio.get_running_loop().add_reader(self._watched, self._hear)

    def _hear(self) -> None:
        assert self._watched is not None
        drain(self._watched)
        self._news.set()
