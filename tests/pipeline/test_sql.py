"""`lakebed sql`: topics as views, tables through Spark's own connectors."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lakebed.cli.failure import exit_code
from lakebed.cli.sql import show, write_csv
from lakebed.config import Settings
from lakebed.errors import Invalid
from lakebed.pipeline.sql import ask
from tests.pipeline.source_world import World, world
from tests.services.spark_jars import spark_jars

__all__ = ["world"]


def asked(spark: Any, world: World, text: str) -> list[tuple[Any, ...]]:
    topics = dict(world.run(world.root.topics()).by_name)
    answer = ask(spark, Settings(root=str(world.folder)), text, topics, {})
    return [tuple(row) for row in answer.rows()]


def test_topics_are_views_whatever_they_are_called(spark: Any, world: World) -> None:
    world.create("orders")
    world.create("my.topic-1", 1)
    world.fill(20)
    world.fill(5, "my.topic-1", partitions=(0,))
    world.settle(partition=1)
    assert asked(spark, world, "SELECT partition, count(*) FROM orders GROUP BY 1 ORDER BY 1") == [
        (0, 20),
        (1, 20),
        (2, 20),
    ]
    assert asked(spark, world, "SELECT max(offset) FROM `my.topic-1`") == [(4,)]
    joined = "SELECT count(*) FROM orders a JOIN orders b ON a.partition = b.partition AND a.offset = b.offset"
    assert asked(spark, world, f"{joined} WHERE a.partition = 1 AND b.offset < 7") == [(7,)]
    either = "WITH o AS (SELECT * FROM orders) SELECT (SELECT count(*) FROM o WHERE partition = 0), count(*) FROM o"
    assert asked(spark, world, either) == [(20, 60)]
    assert asked(spark, world, "SELECT CAST(value AS STRING) FROM orders WHERE partition = 2 AND offset = 11") == [
        ("value-2-11",)
    ]
    views = {row[1] for row in asked(spark, world, "SHOW VIEWS")}
    assert {"orders", "my.topic-1"} <= views


@pytest.mark.parametrize("text", ["SELEC 1", "SELECT price FROM orders", "SELECT * FROM sales"])
def test_a_wrong_statement_is_refused_in_one_line(spark: Any, world: World, text: str) -> None:
    world.create("orders")
    with pytest.raises(Invalid) as refused:
        asked(spark, world, text)
    assert "\n" not in str(refused.value)
    assert exit_code(refused.value) == 2


@pytest.mark.slow
@pytest.mark.services
def test_the_command_answers_from_topics_and_from_both_tables(world: World) -> None:
    world.create("orders")
    world.fill(20)
    assert lakebed(world, "settle", "--once").returncode == 0
    world.fill(5)
    text = (
        "SELECT (SELECT count(*) FROM orders) AS topic, (SELECT count(*) FROM iceberg.lakebed.orders) AS iceberg_rows,"
        " (SELECT count(*) FROM delta.orders) AS delta_rows"
    )
    answered = lakebed(world, "sql", text, "--json")
    assert json.loads(answered.stdout) == {"topic": 75, "iceberg_rows": 60, "delta_rows": 60}


def test_rows_are_written_as_csv_and_shown_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(1, b"text", None, b"\xff"), (2, datetime(2026, 11, 15, tzinfo=UTC), [b"a", None], Decimal("1.50"))]
    columns = ["id", "first", "second", "third"]
    write_csv(columns, iter(rows))
    written = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert written == [
        columns,
        ["1", "text", "", '{"base64":"/w=="}'],
        ["2", "2026-11-15T00:00:00+00:00", '["a",null]', "1.50"],
    ]
    show(columns, iter(rows), None)
    shown = capsys.readouterr().out
    assert "2026-11-15" in shown
    assert "NULL" in shown
    show(["n"], iter([(at,) for at in range(1001)]), None)
    assert "Only the first 1000" in capsys.readouterr().err


def lakebed(world: World, *words: str) -> subprocess.CompletedProcess[str]:
    jars = ",,".join(str(jar) for jar in spark_jars())
    said = {
        "LAKEBED__SPARK__CONF": f"spark.jars={jars}",
        "LAKEBED__SPARK__PACKAGES": "",
        "LAKEBED_ROOT": str(world.folder),
    }
    command = [sys.executable, "-m", "lakebed", *words]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=200,
        env=os.environ | said | {"LAKEBED__SPARK__MASTER": "local[2]"},
        cwd=Path(world.folder).parent,
        check=False,
    )
    print(done.stderr[-3000:])
    return done
