"""The command: help, exit codes, errors in one line, and a fast start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from lakebed.cli.commands import COMMANDS, lakebed, run
from lakebed.cli.failure import describe, exit_code
from lakebed.config import default_file_text
from lakebed.errors import Conflict, Corrupt, Exists, Invalid, NotFound, Unavailable

HEAVY = (
    "lakebed.kernel",
    "lakebed.objects",
    "structlog",
    "prometheus_client",
    "rich",
    "numpy",
    "pyarrow",
    "numba",
    "obstore",
)


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("LAKEBED")]:
        monkeypatch.delenv(name)
    return tmp_path


def all_commands(command: click.Command, path: str) -> list[tuple[str, click.Command]]:
    found = [(path, command)]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            found += all_commands(inner, f"{path} {name}")
    return found


def test_listed_texts_are_those_of_the_commands() -> None:
    context = click.Context(lakebed)
    for name, text in COMMANDS.items():
        command = lakebed.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str(limit=200) == text.removesuffix(".") + "."


def test_every_command_explains_itself_and_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for path, command in all_commands(lakebed, "lakebed"):
        assert run([*path.split()[1:], "--help"]) == 0
        shown = capsys.readouterr().out
        assert f"Usage: {path}" in shown
        if not isinstance(command, click.Group):
            assert "Examples:" in shown
            assert "--json" in shown


def test_help_imports_nothing_heavy() -> None:
    program = "import sys; from lakebed.cli.commands import run; run(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(HEAVY) & set(done.stderr.split()) == set()


def test_module_is_the_command_and_tells_its_version() -> None:
    done = subprocess.run([sys.executable, "-m", "lakebed", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("lakebed 0.")


def test_no_command_shows_help_and_counts_as_asked_wrongly(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "Commands:" in capsys.readouterr().err


def test_unknown_command_and_option_are_one_line_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bogus"]) == 2
    assert capsys.readouterr().err == "error: No such command 'bogus'. See lakebed --help\n"
    assert run(["config", "show", "--bogus"]) == 2
    assert capsys.readouterr().err == "error: No such option '--bogus'. See lakebed config show --help\n"


def test_error_is_told_in_json_when_asked(capsys: pytest.CaptureFixture[str], empty_folder: Path) -> None:
    (empty_folder / "lakebed.yaml").write_text("domains: 0\n")
    assert run(["config", "show", "--json"]) == 2
    out, err = capsys.readouterr()
    told = json.loads(err)
    assert out == ""
    assert told["error"] == "Invalid"
    assert "lakebed.yaml:1" in told["problem"]
    assert told["remedy"].startswith("Use a whole number")
    assert run(["config", "show", "--json", "--bogus"]) == 2
    assert json.loads(capsys.readouterr().err)["error"] == "Usage"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Invalid("x"), 2),
        (click.UsageError("x"), 2),
        (Corrupt("x"), 1),
        (Conflict("x"), 1),
        (Exists("x"), 1),
        (NotFound("x"), 1),
        (Unavailable("x"), 1),
        (click.Abort(), 1),
        (PermissionError(13, "Permission denied", "f"), 1),
    ],
)
def test_each_error_has_its_exit_code(error: Exception, code: int) -> None:
    assert exit_code(error) == code
    assert describe(error).line().startswith("error: ")


def test_system_error_names_the_file() -> None:
    assert (
        describe(PermissionError(13, "Permission denied", "some/file")).line() == "error: some/file: Permission denied"
    )


def test_config_show_says_what_is_in_force_and_why(
    capsys: pytest.CaptureFixture[str], empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (empty_folder / "lakebed.yaml").write_text("kernel:\n  retention: 2d\n")
    monkeypatch.setenv("LAKEBED__DOMAINS", "3")
    assert run(["config", "show", "--origin", "--root", "here"]) == 0
    shown = capsys.readouterr().out
    assert "root: here  # --root\n" in shown
    assert "domains: 3  # LAKEBED__DOMAINS\n" in shown
    assert "  retention: 2d  # lakebed.yaml:2\n" in shown


def test_config_show_in_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernel"]["retention"] == "7d"


def test_config_file_is_taken_from_the_option_or_the_variable(
    capsys: pytest.CaptureFixture[str], empty_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (empty_folder / "other.yaml").write_text("domains: 7\n")
    assert run(["config", "show", "--config", "other.yaml"]) == 0
    assert "domains: 7\n" in capsys.readouterr().out
    monkeypatch.setenv("LAKEBED_CONFIG", "other.yaml")
    assert run(["config", "show"]) == 0
    assert "domains: 7\n" in capsys.readouterr().out
    assert run(["config", "show", "--config", "absent.yaml"]) == 2


def test_defaults_are_shown_also_when_the_file_is_broken(
    capsys: pytest.CaptureFixture[str], empty_folder: Path
) -> None:
    (empty_folder / "lakebed.yaml").write_text("[")
    assert run(["config", "show", "--defaults"]) == 0
    assert capsys.readouterr().out == default_file_text()


def test_defaults_ignore_file_and_variables(capsys: pytest.CaptureFixture[str], empty_folder: Path) -> None:
    (empty_folder / "lakebed.yaml").write_text("domains: 7\n")
    assert run(["config", "show", "--defaults", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["domains"] == 1


def test_reader_that_leaves_early_is_no_error_message() -> None:
    line = f"{sys.executable} -m lakebed config show --defaults | head -1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("# Lakebed")
    assert done.stderr == ""
