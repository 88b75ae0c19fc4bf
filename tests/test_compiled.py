"""Rooms that are compiled: that they are, that nothing in them is known to be compiled wrongly, and that they need not be."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.compile_rooms import MODULES, REPOSITORY, SOURCES, is_compiled, want_of_compiler

from tests.services.requirement import require

_PURE = {"len"}
_TESTS = ("tests/unit/groups", "tests/unit/broker/test_connection_times.py", "tests/unit/broker/test_listener.py")


def test_rooms_are_compiled() -> None:
    if not is_compiled():
        require("compiled-rooms", want_of_compiler() or "make setup was told PLAIN=1")
    assert _file_of(MODULES[0]).suffix == ".so"
    assert [module for module in MODULES if not list((SOURCES / "lakebed").glob(f"{module}.*.so"))] == []


@pytest.mark.parametrize("module", MODULES)
def test_bounds_of_slices_have_no_effect(module: str) -> None:
    assert list(_busy_slices((SOURCES / "lakebed" / f"{module}.py").read_text())) == []


def test_slice_with_an_effect_is_found() -> None:
    assert list(_busy_slices("rest = rest[write(rest) :]\nhead = rest[: len(rest)]")) == ["write(rest):"]


@pytest.mark.parametrize("module", MODULES)
def test_classes_have_no_keywords(module: str) -> None:
    assert list(_keyworded_classes((SOURCES / "lakebed" / f"{module}.py").read_text())) == []


def test_class_with_a_keyword_is_found() -> None:
    assert list(_keyworded_classes("class A(Struct, eq=False): ...\nclass B(Struct): ...")) == ["A"]


@pytest.mark.slow
def test_plain_rooms_pass_the_same_tests(tmp_path: Path) -> None:
    shutil.copytree(SOURCES / "lakebed", tmp_path / "lakebed", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    assert _file_of("broker/connection", tmp_path).suffix == ".py"
    told = _python("-m", "pytest", "-q", "-p", "no:cacheprovider", *_TESTS, sources=tmp_path)
    assert " passed" in told.splitlines()[-1], told


def _busy_slices(source: str) -> Iterator[str]:
    """Slices whose bounds might do something when they are evaluated."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Slice):
            parts = [part for bound in (node.lower, node.upper, node.step) if bound for part in ast.walk(bound)]
            if any(isinstance(part, ast.Await | ast.NamedExpr) or _is_busy_call(part) for part in parts):
                yield ast.unparse(node)


def _keyworded_classes(source: str) -> Iterator[str]:
    """Classes whose making depends on more than their bases: compiled, they would be made without."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.keywords:
            yield node.name


def _is_busy_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in _PURE)


def _file_of(module: str, sources: Path | None = None) -> Path:
    """What is imported for a module."""
    return Path(_python("-c", f"import lakebed.{module.replace('/', '.')} as it; print(it.__file__)", sources=sources))


def _python(*words: str, sources: Path | None = None) -> str:
    """What a Python of its own prints, which takes the program from `sources` if they are given."""
    environment = {**os.environ, "PYTHONPATH": str(sources or "")}
    done = subprocess.run([sys.executable, *words], cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()
