"""`lakebed log` and `lakebed demo`, on a log that a demo has made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakebed.cli.commands import run
from lakebed.config import load_settings
from lakebed.streams import store_options


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("demo") / "root"
    assert run(["demo", "--part", "kernel", "--json", "--keep", str(folder)]) == 0
    return str(folder / "kernel")


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert run([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def lines(capsys: pytest.CaptureFixture[str], *words: str) -> list[Any]:
    assert run([*words, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.slow
def test_demo_tells_what_it_proved(capsys: pytest.CaptureFixture[str]) -> None:
    facts = answer(capsys, "demo")
    assert facts["race_transactions"] == 400
    assert facts["stale_write"] == "Conflict"
    assert facts["crowd_commits"] < facts["crowd_transactions"]
    assert facts["produced_records"] == facts["read_records"] == 10_000
    assert facts["acknowledged_before_the_kill"] >= 1000
    assert facts["acknowledged_and_missing"] == facts["group_read_twice"] == 0
    assert facts["readyz"].startswith("200")


def test_demo_for_people_walks_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--part", "kernel"]) == 0
    assert "A newcomer opens the folder" in capsys.readouterr().out


def test_demo_does_not_touch_a_folder_with_something_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").touch()
    assert run(["demo", "--keep", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_show_gives_the_log_and_its_newest_commit(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = answer(capsys, "log", "show", "--root", root)
    assert shown["log"]["newest"] == shown["commit"]["version"]
    assert shown["commit"]["operations"] == [{"type": "put", "key": "news", "value": 1}]


def test_show_of_a_version_is_the_stored_file(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    stored = Path(root, "meta", "domain=00", "_delta_log", f"{1:020d}.json").read_text()
    assert answer(capsys, "log", "show", "--root", root, "--version", "1")["commit"] == json.loads(stored)


def test_history_lists_commits_up_to_a_version(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = lines(capsys, "log", "history", "--root", root, "--version", "5", "--limit", "3")
    assert [row["version"] for row in rows] == [3, 4, 5]
    rows = lines(capsys, "log", "history", "--root", root, "--limit", "100000")
    assert [row["version"] for row in rows] == list(range(len(rows)))
    assert rows[0]["operations"] == {"put": 1}
    assert sum(row["transactions"] for row in rows) > 2400


def test_state_can_be_looked_at_in_the_past(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    now = answer(capsys, "log", "state", "--root", root, "--prefix", "topic/")
    assert [(key["key"], key["value"]) for key in now["keys"]] == [("topic/orders", {"partitions": 2})]
    assert now["streams"][0]["offset_end"] == 400
    then = answer(capsys, "log", "state", "--root", root, "--version", "1", "--prefix", "topic/")
    assert then["keys"][0]["value"] == {"partitions": 1}
    assert then["streams"] == []
    moment = answer(capsys, "log", "state", "--root", root, "--at", then["timestamp"], "--prefix", "topic/")
    assert moment == then


def test_tables_for_people_show_the_same(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words, expected in [
        (["show"], "log_id"),
        (["history", "--limit", "2"], "demo:news"),
        (["state", "--prefix", "topic"], '{"partitions":2}'),
    ]:
        assert run(["log", *words, "--root", root]) == 0
        assert expected in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["show", "--version", "999999"], 1, "has no version 999999"),
        (["history", "--version", "999999"], 1, "has no version 999999"),
        (["state", "--version", "999999"], 1, "has no version 999999"),
        (["state", "--at", "1999-01-01T00:00:00Z"], 1, "no version as old as"),
        (["state", "--at", "yesterday"], 2, "is not a moment"),
        (["state", "--at", "2026-01-01", "--version", "1"], 2, "Give one of them"),
        (["show", "--version", "-1"], 2, "Invalid value for '--version'"),
        (["show", "--log", "../../etc"], 2, "no log is called"),
        (["show", "--log", "cluster"], 1, "there is no log at"),
    ],
)
def test_question_without_an_answer_says_why(
    root: str, words: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["log", *words, "--root", root]) == code
    out, err = capsys.readouterr()
    assert told in err
    assert out == ""


def test_looking_at_nothing_creates_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "show", "--root", str(tmp_path / "absent")]) == 1
    assert "there is no log at" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_bucket_options_come_from_the_settings() -> None:
    variables = {"LAKEBED__OBJECTS__SECRET_KEY": "s", "LAKEBED__OBJECTS__ENDPOINT": "http://127.0.0.1:1"}
    options = store_options(load_settings(environment=variables).settings.objects)
    assert (options.secret_key, options.endpoint, options.timeout_s) == ("s", "http://127.0.0.1:1", 30)
