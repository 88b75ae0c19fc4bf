"""The foreign clients, installed when first asked for."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import sys
from pathlib import Path

from tests.clients.conformance import Client
from tests.services.kafka_server import compiled, java_command
from tests.services.processes import install, install_lock
from tests.services.requirement import require

_HERE = Path(__file__).parent
_JAVA = _HERE.parents[1] / "services" / "java" / "Conformance.java"
_JAVA_MEMBER = _JAVA.with_name("GroupMember.java")
NAMES = ("java", "franz-go", "kafkajs", "kcat")


@functools.cache
def foreign_client(name: str) -> Client:
    """The client of that name, ready to be called."""
    return {"java": _java, "franz-go": _franz_go, "kafkajs": _kafkajs, "kcat": _kcat}[name]()


@functools.cache
def foreign_member(name: str) -> tuple[str | Path, ...]:
    """The command of a member of a group; BOOTSTRAP TOPIC member GROUP PROTOCOL INSTANCE follow."""
    if name == "java":
        return tuple(java_command(compiled(_JAVA_MEMBER), _JAVA_MEMBER.stem))
    program = foreign_client(name).command
    return (program[0], Path(program[1]).with_name("member.js")) if name == "kafkajs" else program


def _java() -> Client:
    return Client("java", tuple(java_command(compiled(_JAVA), _JAVA.stem)))


def _franz_go() -> Client:
    source = _HERE / "go"
    go = shutil.which("go") or require("franz-go", "there is no Go to build it with")
    with install_lock("franz-go") as cache:
        program = cache / "bin" / f"franz-go-{_digest(source)}"
        if not program.exists():
            install("franz-go", [go, "build", "-C", source, "-mod=readonly", "-o", program, "."])
    return Client("franz-go", (program,))


def _kafkajs() -> Client:
    source = _HERE / "node"
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        require("kafkajs", "there is no Node.js to run it with")
    with install_lock("kafkajs") as cache:
        folder = cache / f"kafkajs-{_digest(source)}"
        if not folder.exists():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            shutil.copytree(source, partial)
            install("kafkajs", [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", partial])
            partial.rename(folder)
    return Client(
        "kafkajs",
        (node, folder / "conformance.js"),
        cannot_send=frozenset({"null header", "interleaved headers"}),
        groups_headers=True,
        reads_in_group=True,
    )


def _kcat() -> Client:
    with install_lock("kcat"):
        if shutil.which("kcat") is None:
            apt = shutil.which("apt-get")
            if apt is None or os.geteuid() != 0:
                require("kcat", "it is not on the path, and only root can install Debian's packages")
            install("kcat", [apt, "install", "-y", "-q", "--no-install-recommends", "kcat"])
    return Client(
        "kcat",
        (sys.executable, _HERE / "kcat.py"),
        partitions=1,
        cannot_send=frozenset({"binary key", "binary header"}),
        cannot_show=frozenset({"binary header"}),
        sends_timestamps=False,
    )


def _digest(folder: Path) -> str:
    content = b"".join(file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file())
    return hashlib.sha256(content).hexdigest()[:16]
