"""Queries made up by chance over the columns of a topic, with `{o}` where the topic is meant: same chance, same query."""

from __future__ import annotations

from random import Random

from tests.pipeline.source_world import FIRST_MS

_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "size({a}.headers)", "get({a}.headers, 0).value")


def random_query(chance: Random) -> str:
    """A query whose answer does not depend on the order of its rows."""
    shape = chance.choice((_plain, _plain, _grouped, _joined, _joined, _halved, _combined, _nested, _named, _first))
    return shape(chance)


def _plain(chance: Random) -> str:
    return f"SELECT {_columns(chance, 'a')} FROM {{o}} a WHERE {_condition(chance, 'a')}"


def _grouped(chance: Random) -> str:
    by = chance.choice(("a.partition", "a.offset % 4", "a.key IS NULL"))
    counted = chance.choice(
        ("count(*)", "max(a.offset)", "sum(length(a.value))", "count(DISTINCT a.key)", "min(a.timestamp)")
    )
    return f"SELECT {by}, {counted} FROM {{o}} a WHERE {_condition(chance, 'a')} GROUP BY 1"


def _joined(chance: Random) -> str:
    on = chance.choice(
        ("a.offset = b.offset", "a.key = b.key", "a.partition = b.partition AND a.offset = b.offset + 1")
    )
    kind = chance.choice(("JOIN", "LEFT JOIN", "FULL JOIN"))
    conditions = f"{_condition(chance, 'a')} AND {_condition(chance, 'b')}"
    said = f"{{o}} a {kind} {{o}} b ON {on} AND {_condition(chance, 'b')} WHERE {conditions}"
    return f"SELECT {_columns(chance, 'a')}, {_columns(chance, 'b')} FROM {said}"


def _halved(chance: Random) -> str:
    kind = chance.choice(("LEFT SEMI JOIN", "LEFT ANTI JOIN"))
    within = f"SELECT * FROM {{o}} c WHERE {_condition(chance, 'c')}"
    return f"SELECT count(*) FROM {{o}} a {kind} ({within}) b ON a.offset = b.offset WHERE {_condition(chance, 'a')}"


def _combined(chance: Random) -> str:
    word = chance.choice(("UNION ALL", "UNION", "EXCEPT ALL", "INTERSECT ALL", "EXCEPT"))
    columns = _columns(chance, "a")
    sides = [f"SELECT {columns} FROM {{o}} a WHERE {_condition(chance, 'a')}" for _ in range(2)]
    return f" {word} ".join(sides)


def _nested(chance: Random) -> str:
    one = f"(SELECT max(b.offset) FROM {{o}} b WHERE {_condition(chance, 'b')})"
    where = chance.choice(
        (
            f"EXISTS (SELECT * FROM {{o}} c WHERE c.offset = a.offset AND {_condition(chance, 'c')})",
            f"a.offset IN (SELECT c.offset + 1 FROM {{o}} c WHERE {_condition(chance, 'c')})",
            f"a.offset = {one}",
            "a.offset < (SELECT avg(c.offset) FROM {o} c WHERE c.partition = a.partition)",
        )
    )
    return f"SELECT {_columns(chance, 'a')}, {one} FROM {{o}} a WHERE {_condition(chance, 'a')} AND {where}"


def _named(chance: Random) -> str:
    return (
        f"WITH w AS (SELECT partition, offset, key FROM {{o}} a WHERE {_condition(chance, 'a')}) "
        f"SELECT (SELECT count(*) FROM w v WHERE {_condition(chance, 'v', times=False)}), x.offset, y.key "
        f"FROM w x JOIN w y ON x.offset = y.offset WHERE {_condition(chance, 'y', times=False)}"
    )


def _first(chance: Random) -> str:
    return (
        f"SELECT partition, offset, value FROM {{o}} a WHERE {_condition(chance, 'a')} "
        f"ORDER BY offset, partition LIMIT {chance.randrange(1, 20)}"
    )


def _columns(chance: Random, table: str) -> str:
    chosen = chance.sample(_COLUMNS, chance.randrange(1, 4))
    return ", ".join(each.format(a=table) if "{a}" in each else f"{table}.{each}" for each in chosen)


def _condition(chance: Random, table: str, *, times: bool = True) -> str:
    parts = [_comparison(chance, table, times) for _ in range(chance.randrange(0, 4))]
    text = "".join(f"{part} {chance.choice(('AND', 'AND', 'OR'))} " for part in parts[:-1]) + "".join(parts[-1:])
    return f"({text or 'true'})"


def _comparison(chance: Random, table: str, times: bool) -> str:
    sign, offset = chance.choice(("<", "<=", "=", ">=", ">", "<=>", "<>")), chance.randrange(-2, 43)
    numbers = ", ".join(str(chance.randrange(0, 45)) for _ in range(3))
    plain = [
        f"{table}.partition {sign} {chance.randrange(0, 4)}",
        f"{table}.partition IN ({chance.randrange(0, 4)}, {chance.randrange(0, 4)})",
        f"{table}.offset {sign} {offset}",
        f"{table}.offset IN ({numbers})",
        f"NOT {table}.offset BETWEEN {offset} AND {offset + 9}",
        f"{table}.key IS NOT NULL",
        f"{table}.key = CAST('key-{offset}' AS BINARY)",
    ]
    timed = [
        f"{table}.timestamp {sign} timestamp_millis({FIRST_MS + offset * 1000 + chance.randrange(0, 3)})",
        f"{table}.timestamp > timestamp_millis({FIRST_MS + offset * 500})",
        f"{table}.value >= CAST('value-1' AS BINARY)",
    ]
    return chance.choice(plain + (timed if times else []))
