"""Walk a folder in the order of the keys' bytes, as a bucket would list it.

A folder sorts as its name with `/` behind it, since that is how all its keys begin: `a-b` comes before `a/b`, and `a0`
after it. Nothing is held but the sorted names of the folders on the way down.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from lakebed.objects.files import Files
from lakebed.objects.port import Key

Step = tuple[Key, os.stat_result] | None
"""An object, or None for a step that found nothing: so that work can be bounded by steps, not by finds."""


def walk(files: Files, root: Path, prefix: Key, after: Key) -> Iterator[Step]:
    """The objects whose keys start with `prefix` and are greater than `after`, ascending."""
    start = prefix.rpartition("/")[0]
    base = start + "/" if start else ""
    if any(part in ("", "..") or part.startswith(".") for part in start.split("/")) and start:
        return
    yield from _walk_folder(files, root / start, base, prefix.encode(), after.encode())


def _walk_folder(files: Files, path: Path, base: Key, prefix: bytes, after: bytes) -> Iterator[Step]:
    for name in _sorted_names(files, path):
        key = base + name
        raw = key.encode()
        if name.endswith("/"):
            if _may_hold(raw, prefix, after):
                yield from _walk_folder(files, path / name[:-1], key, prefix, after)
        elif raw.startswith(prefix) and raw > after:
            yield _look(files, path, key, name)


def _may_hold(folder: bytes, prefix: bytes, after: bytes) -> bool:
    """Whether a key that begins with `folder` can start with `prefix` and be greater than `after`."""
    on_the_way = folder.startswith(prefix) or prefix.startswith(folder)
    return on_the_way and (folder > after or after.startswith(folder))


def _sorted_names(files: Files, path: Path) -> list[str]:
    """Files and folders (with a `/` behind), ascending by bytes. Links, reserved and undecodable names are not ours."""
    try:
        folder = files.folder(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    names = []
    with os.scandir(folder.fd) as entries:
        for entry in entries:
            if entry.name.startswith(".") or not entry.name.isprintable():
                continue
            if entry.is_dir(follow_symlinks=False):
                names.append(entry.name + "/")
            elif entry.is_file(follow_symlinks=False):
                names.append(entry.name)
    return sorted(names, key=str.encode)


def _look(files: Files, path: Path, key: Key, name: str) -> Step:
    try:
        folder = files.folder(path)
        return key, os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
    except FileNotFoundError:
        return None  # removed since the folder was read
