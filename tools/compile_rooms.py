"""Compile the rooms that every request goes through with mypyc, from the same sources, where a C compiler is at hand.

python tools/compile_rooms.py           compile what has changed; without a compiler everything runs as it is
python tools/compile_rooms.py --plain   take the compiled modules away

Modules are compiled whole or not at all, beside their sources; they are used only while `is_stale` says no.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCES = REPOSITORY / "src"
GROUP = "lakebed"
"""What the library that holds the code is named after; each module has a small one of its own, which loads it."""

MODULES = (
    "broker/budget",
    "broker/buffers",
    "broker/connection",
    "broker/coordination/gathering",
    "broker/coordination/leader",
    "broker/coordination/reply",
    "broker/coordination/slots",
    "broker/dispatch",
    "broker/handlers/group_answers",
    "broker/handlers/heartbeat",
    "broker/handlers/join_group",
    "broker/handlers/sync_group",
    "broker/inbox",
    "groups/assignors",
    "groups/classic_group",
    "groups/classic_join",
    "groups/classic_members",
    "groups/classic_rebalance",
    "groups/consumer_group",
    "groups/consumer_heartbeat",
    "groups/coordinator",
    "groups/describe",
    "groups/growing",
    "groups/idle",
    "groups/keys",
    "groups/known",
    "groups/ledger",
    "groups/loading",
    "groups/reconcile",
    "groups/timers",
    "groups/topics",
    "protocol/frames",
)
"""What is worth it and can be had, and runs on the event loop only. mypyc takes the defaults of renamed fields of msgspec
structures for values, forgets the keywords of a class (`frozen=True`), cannot make asynchronous generators, and evaluates the
bounds of a slice twice, so that nothing in them may have an effect.
"""

_ROOMS = ("broker", "groups", "kernel", "observe", "protocol", "records", "objects", "streams", "wal")
"""Whose types compiled code relies on."""
_STATE = REPOSITORY / ".cache" / "compiled"
_DONE = _STATE / "state"
_WORK_VARIABLE = "LAKEBED_COMPILE_IN"


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--plain"]):
        sys.stderr.write(__doc__ or "")
        return 2
    if arguments:
        _remove()
        return 0
    if (missing := want_of_compiler()) is not None:
        _remove()
        _tell(f"{missing}: Lakebed runs as plain Python, which is slower")
        return 0
    digest = _digest()
    if _is_done(digest):
        return 0
    _remove()
    _tell(f"compiling {len(MODULES)} modules, once: about a minute (PLAIN=1 does without)")
    _compile()
    _DONE.write_text(digest)  # a failure too: it would be the same again
    return 0


def want_of_compiler() -> str | None:
    """What a machine lacks to compile; None where it has all."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        return f"no C compiler ({compiler})"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "no Python.h"
    return None


def is_compiled() -> bool:
    """Whether any module here is compiled."""
    return next(_libraries(), None) is not None


def is_stale() -> bool:
    """Whether what is compiled is not what the sources say."""
    return is_compiled() and not _is_done(_digest())


def _is_done(digest: str) -> bool:
    return _DONE.exists() and _DONE.read_text() == digest


def _digest() -> str:
    """Of all that the compiled code depends on."""
    digest = hashlib.sha256(f"{sys.version} {platform.machine()} {' '.join(MODULES)}".encode())
    rooms = (path for room in _ROOMS for path in (SOURCES / "lakebed" / room).rglob("*.py"))
    for path in sorted([*rooms, *(SOURCES / "lakebed").glob("*.py"), REPOSITORY / "requirements" / "dev.txt"]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _libraries() -> Iterator[Path]:
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    yield from SOURCES.glob(f"{GROUP}__mypyc{suffix}")
    yield from (SOURCES / "lakebed").rglob(f"*{suffix}")


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _remove() -> None:
    for library in list(_libraries()):
        library.unlink()
    shutil.rmtree(_STATE, ignore_errors=True)


def _compile() -> None:
    """In a process and a folder of its own, so that nothing half made is ever imported."""
    work, log = _STATE / "work", _STATE / "log"
    work.mkdir(parents=True)
    environment = {**os.environ, _WORK_VARIABLE: str(work)}
    with log.open("w") as told:
        done = subprocess.run(
            [sys.executable, __file__], cwd=REPOSITORY, env=environment, stdout=told, stderr=subprocess.STDOUT
        )
    if done.returncode:
        _tell(f"that failed, so Lakebed runs as plain Python; the reasons are in {log}")
    else:
        built = work / "lib"
        for library in built.rglob("*.so"):
            shutil.copy2(library, SOURCES / library.relative_to(built))
    shutil.rmtree(work)


def _build(work: Path) -> None:
    from mypyc.build import mypycify
    from setuptools import setup

    paths = [str((SOURCES / "lakebed" / f"{module}.py").relative_to(REPOSITORY)) for module in MODULES]
    extensions = mypycify(
        [f"--config-file={REPOSITORY / 'pyproject.toml'}", *paths],
        opt_level="2",
        debug_level="0",
        target_dir=str(work / "c"),
        group_name=GROUP,
    )
    folders = [f"--build-lib={work / 'lib'}", f"--build-temp={work / 'objects'}"]
    setup(name=GROUP, packages=[], py_modules=[], ext_modules=extensions, script_args=["build_ext", *folders])


if __name__ == "__main__":
    if _WORK_VARIABLE in os.environ:
        _build(Path(os.environ[_WORK_VARIABLE]))
    else:
        sys.exit(main(sys.argv[1:]))
