"""The way to Spark: which Java, which settings, and Lakebed for executors that have none."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest

from lakebed.errors import Invalid
from lakebed.pipeline import daemon
from lakebed.pipeline.java import find_java, java_home
from lakebed.pipeline.session import is_local, named_conf, retrying
from lakebed.pipeline.shipping import archive


def installed(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\necho "$@"\n')
    java.chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return java


def test_the_named_java_wins_over_the_environment_and_the_path(tmp_path: Path) -> None:
    one, two, three = (installed(tmp_path / name, "21.0.1") for name in ("one", "two", "three"))
    environment = {"JAVA_HOME": str(tmp_path / "two"), "PATH": str(three.parent)}
    assert find_java(str(tmp_path / "one"), environment) == one
    assert find_java(None, environment) == two
    assert find_java(None, {"PATH": str(three.parent)}) == three


def test_an_old_java_is_refused_when_named_and_passed_over_on_the_path(tmp_path: Path) -> None:
    old = installed(tmp_path / "old", "1.8.0_392")
    with pytest.raises(Invalid, match="older Java"):
        find_java(str(tmp_path / "old"), {})
    assert find_java(None, {"PATH": str(old.parent)}) != old


def test_a_java_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="no bin/java"):
        find_java(str(tmp_path), {})


def test_without_any_java_the_packaged_one_serves() -> None:
    assert os.access(find_java(None, {"PATH": ""}), os.X_OK)


def test_the_script_leaves_out_one_argument_and_keeps_the_others(tmp_path: Path) -> None:
    installed(tmp_path / "jdk", "21")
    home = java_home(str(tmp_path / "jdk"), {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert java_home(str(tmp_path / "jdk"), {"XDG_CACHE_HOME": str(tmp_path / "cache")}) == home
    words = ["-x", "--add-modules=jdk.incubator.vector", "a b", ""]
    told = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True)
    assert told.stdout == "-x a b \n"
    assert (home / "bin" / "java").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        ("spark://h:7077", "spark://h:7077"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
    ],
)
def test_local_masters_try_tasks_again(master: str, expected: str) -> None:
    assert retrying(master, 4) == expected
    assert is_local(master) == expected.startswith("local[")


def test_further_settings_are_read_and_wrong_ones_refused() -> None:
    assert named_conf(None) == {}
    assert named_conf("spark.a=1, spark.b=x,,y") == {"spark.a": "1", "spark.b": "x,y"}
    with pytest.raises(Invalid):
        named_conf("a=1")
    with pytest.raises(Invalid):
        named_conf("spark.a")


def test_the_shipped_archive_unpacks_itself_and_keeps_compiled_code_outside(tmp_path: Path) -> None:
    shipped = archive("9.9")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import lakebed, lakebed.records, lakebed.jit as jit\n"
        "print(lakebed.__version__, lakebed.records.__file__, jit.CACHE_FOLDER)"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": ""}
    environment.pop("NUMBA_CACHE_DIR", None)
    told = subprocess.run(
        [sys.executable, "-c", program, str(shipped)], capture_output=True, text=True, check=True, env=environment
    )
    version, module, cache = told.stdout.split()
    assert version == "9.9"
    assert module.startswith(str(tmp_path / "lakebed" / "shipped"))
    assert cache.startswith(str(tmp_path / "lakebed" / "numba"))
    assert archive("9.9").name == shipped.name


def test_archives_that_were_loaded_from_are_not_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "spark.zip", "w") as packed:
        packed.writestr("packed_package/__init__.py", "")
        packed.writestr("packed_package/inner.py", "")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "spark.zip"), *sys.path])
    monkeypatch.setattr(sys, "path_importer_cache", dict(sys.path_importer_cache))
    importlib.import_module("packed_package.inner")
    assert any(isinstance(finder, zipimporter) for finder in sys.path_importer_cache.values())
    daemon._forget_archives()
    assert not any(isinstance(finder, zipimporter) for finder in sys.path_importer_cache.values())
    assert str(tmp_path / "spark.zip") not in sys.path
