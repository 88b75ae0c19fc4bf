"""What a statement mentions, found without understanding it."""

from __future__ import annotations

import pytest

from lakebed.pipeline.sql_names import Statement


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("SELECT * FROM orders", 1),
        ("SELECT * FROM `orders` AS o JOIN ORDERS", 2),
        ("SELECT 'orders', \"orders\", 'it\\'s orders' -- orders\n FROM sales /* orders\n */", 0),
        ("SELECT my_orders FROM orders2", 0),
    ],
)
def test_names_are_found_outside_of_quotes_and_comments(text: str, times: int) -> None:
    assert Statement(text).mentions("orders") == times


def test_names_with_dots_are_found_when_quoted() -> None:
    assert Statement("SELECT * FROM `my.topic-1`").mentions("my.topic-1") == 1


def test_catalogs_are_entered_by_a_dot_and_rewritten_in_place() -> None:
    statement = Statement(
        "SELECT iceberg, 'delta.orders' FROM iceberg.lakebed.orders, Delta.`or.ders`, delta.`/a/b`, x.delta.c"
    )
    assert statement.enters("iceberg")
    assert statement.enters("delta")
    assert not Statement("SELECT iceberg FROM orders").enters("iceberg")
    found = statement.rewritten({"iceberg": "lakebed"}, {"or.ders": "/r/delta/o-1"}.get)
    assert found == (
        "SELECT iceberg, 'delta.orders' FROM `lakebed`.lakebed.orders, Delta.`/r/delta/o-1`, delta.`/a/b`, x.delta.c"
    )
