"""The door of the room: light for the broker, and careful about where compiled code is kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import lakebed.records
from lakebed import jit


def test_broker_side_loads_without_compiled_kernels() -> None:
    heavy = "numba", "numpy", "pyarrow"
    program = (
        "import sys, lakebed.records as records\n"
        "headers = records.check_produce(records.build_batch([records.Record(0, 0, None, b'v')]), records.ProduceRules(), 0)\n"
        "assert len(headers) == 1\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_every_public_name_can_be_had() -> None:
    for name in lakebed.records.__all__:
        assert getattr(lakebed.records, name) is not None
    with pytest.raises(AttributeError):
        lakebed.records.absent  # noqa: B018


def test_warming_twice_does_no_harm() -> None:
    lakebed.records.warm()
    lakebed.records.warm()


def test_compiled_code_goes_where_the_operator_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEBED_NUMBA_CACHE_DIR", str(tmp_path))
    folder = jit._cache_folder()
    assert folder is not None
    assert folder.parent == tmp_path
    monkeypatch.setenv("LAKEBED_NUMBA_CACHE_DIR", str(folder))
    assert jit._cache_folder() == folder


def test_nothing_is_kept_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("LAKEBED_NUMBA_CACHE_DIR", str(blocked))
    assert jit._cache_folder() is None
