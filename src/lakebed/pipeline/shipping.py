"""Lakebed for executors that have none: the package as an archive, which unpacks itself where it is first imported.

Invariant: code is compiled and run from plain files in a folder of the user who runs it, never from within an archive, because
compiled kernels cannot be kept there.
"""

from __future__ import annotations

import tempfile
import zipfile
from hashlib import sha256
from pathlib import Path

_PACKAGE = Path(__file__).parent.parent
_BIRTH = (1980, 1, 1, 0, 0, 0)

_DOOR = '''"""Unpacks the package beside the user's caches and goes on from there."""

import os
import tempfile
import zipfile

__version__ = "{version}"


def _unpacked():
    archive = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(cache, "lakebed", "shipped")
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if os.stat(folder).st_uid != os.geteuid() or not os.access(folder, os.W_OK | os.X_OK):
            folder = tempfile.mkdtemp(prefix="lakebed-")
    except OSError:
        folder = tempfile.mkdtemp(prefix="lakebed-")
    whole = os.path.join(folder, "{state}")
    if not os.path.isdir(whole):
        draft = tempfile.mkdtemp(dir=folder)
        with zipfile.ZipFile(archive) as members:
            members.extractall(draft)
        try:
            os.rename(draft, whole)
        except OSError:
            if not os.path.isdir(whole):
                raise
    return os.path.join(whole, "lakebed")


if not os.path.isfile(__file__):
    __path__ = [_unpacked()]
'''


def archive(version: str) -> Path:
    """Write the package into a zip for `addPyFile` or `addArtifacts`; the same sources give the same bytes and name."""
    sources = {path.relative_to(_PACKAGE).as_posix(): path.read_bytes() for path in sorted(_PACKAGE.rglob("*.py"))}
    state = sha256(b"\0".join(name.encode() + b"\0" + body for name, body in sources.items())).hexdigest()[:16]
    sources["__init__.py"] = _DOOR.format(version=version, state=state).encode()
    target = Path(tempfile.mkdtemp(prefix="lakebed-")) / f"lakebed-{state}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as members:
        for name, body in sources.items():
            members.writestr(zipfile.ZipInfo(f"lakebed/{name}", _BIRTH), body, zipfile.ZIP_DEFLATED)
    return target
