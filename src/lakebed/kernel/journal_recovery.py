"""Making the commits of a folder whole again after the power went: what was in the journal or a bundle gets its file back.

Invariant: whoever reads a folder with a journal has seen it made whole in this life of the file system. To do it again changes
nothing, and others may commit meanwhile: what is there whole stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from lakebed.errors import Corrupt
from lakebed.kernel.bundle import BUNDLE_SIZE, bundle_first, decode_bundle
from lakebed.kernel.documents import commit_name
from lakebed.kernel.journal import JOURNAL, PAGE_BYTES, Journal, Lasting, new_page
from lakebed.kernel.operations import whole_version_of
from lakebed.objects import Files


def open_journal(files: Files, folder: Path, create_synced: Callable[[int, bytes], None]) -> Journal | None:
    """The journal of a folder, if it has one."""
    try:
        return Journal(files, folder, create_synced)
    except FileNotFoundError:
        return None


def make_journal(files: Files, folder: Path, size_bytes: int) -> None:
    """Lay out a journal where one can be used; another process may have been faster."""
    if not files.disk.life(files.folder(folder).fd):
        return
    with suppress(FileExistsError):
        size_bytes = max(PAGE_BYTES, size_bytes // PAGE_BYTES * PAGE_BYTES)
        files.create_synced(folder, JOURNAL, new_page(Lasting(1, 0, "")).ljust(size_bytes, b"\x00"))


def make_whole(files: Files, folder: Path, journal: Journal) -> bool:
    """See to it that every commit has its file. False: somebody else is at it, or commits; ask again."""
    if _is_whole(journal):
        return True
    with journal.locked() as locked:
        if not locked:
            return False
        if not _is_whole(journal):
            lasting = journal.lasting or Lasting(1, 0, "")
            checked = _restore_bundles(files, folder, lasting.checked)
            for version, body in journal.records().items():
                _restore(files, folder, version, body, bundled=False)
            files.sync_folder(folder)
            journal.begin(Lasting(lasting.lap + 1, checked, journal.life))
    return True


def _is_whole(journal: Journal) -> bool:
    lasting = journal.lasting
    return lasting is not None and lasting.life == journal.life


def _restore_bundles(files: Files, folder: Path, checked: int) -> int:
    """Restore what is in bundles that end behind `checked`; returns where the last of them ends."""
    firsts = sorted((first, name) for name in files.names(folder) if (first := bundle_first(name)) is not None)
    for first, name in firsts:
        if first + BUNDLE_SIZE > checked:
            with suppress(Corrupt):  # its commits are read instead, and whoever verifies the log says so
                for version, body in enumerate(decode_bundle(files.read(folder / name), name), first):
                    _restore(files, folder, version, body, bundled=True)
                checked = first + BUNDLE_SIZE
    return checked


def _restore(files: Files, folder: Path, version: int, body: bytes, *, bundled: bool) -> None:
    """Give a commit its file, unless there is a whole one. A record may be of a try that lost against another commit."""
    path = folder / commit_name(version)
    try:
        there = files.read(path)
    except FileNotFoundError:
        there = b""
    if there == body or (not bundled and whole_version_of(there) == version):
        files.sync(path)
    else:
        files.replace_synced(folder, path.name, body)
