"""Subscribed expressions: what they match, what is refused, and that none takes long."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.clock import SystemClock
from lakebed.groups import Regex, check_regex

NAMES = ["orders", "orders-eu", "orders.eu.1", "ORDERS", "payments_2", "a", "", "aaaa", "b-b-b", "x1y22", "__internal"]

PATTERNS = [
    "orders",
    "order.*",
    "orders|payments_2",
    "(orders|payments)(_\\d+)?",
    "[a-z]+",
    "[^a-z]*",
    "[a-z\\-]+-[a-z]{2}",
    "a{2,4}",
    "a{4}",
    "a{0}",
    "(a|b)*",
    "(?:b-?)+",
    "(?i)orders",
    "(?i:ORD)ers",
    "^orders$",
    "\\Aorders",
    "\\w+",
    "\\W*",
    "[[:alpha:]]+",
    "[[:^digit:]]+",
    "x\\d+y\\d{2}",
    "\\Qorders.eu\\E\\.1",
    "(?P<name>orders).*",
    "[]a]+",
    "[a-]+",
    ".*\\.eu\\..*",
    "",
    "a||b",
    "(|a)+",
    "[\\x61-\\x63]*",
    "\\p{Lu}+",
    "o{1}?rders",
]

IN_PYTHON = {
    "[[:alpha:]]+": "[A-Za-z]+",
    "[[:^digit:]]+": "[^0-9]+",
    "\\Qorders.eu\\E\\.1": "orders\\.eu\\.1",
    "\\p{Lu}+": "[A-Z]+",
    "[]a]+": "[\\]a]+",
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_expression_matches_what_it_says(pattern: str) -> None:
    expected = re.compile(IN_PYTHON.get(pattern, pattern), re.ASCII)
    assert [name for name in NAMES if Regex.parse(pattern).matches(name)] == [
        name for name in NAMES if expected.fullmatch(name)
    ]


REFUSED = """( ) a) [ [a * a** a{2,1} a{9999} \\1 (?=a) (?<!a) \\b [z-a] \\ a{x} [[:none:]] \\p{Nonsense} (?P<1>a) \\xzz
    ((((a{90}){90}){90}){90})"""


@pytest.mark.parametrize("pattern", [*REFUSED.split(), "(" * 60 + ")" * 60])
def test_expression_that_is_none_or_not_taken_is_refused_with_its_place(pattern: str) -> None:
    assert "character" in check_regex(pattern, 1_024)


def test_expression_that_is_too_long_is_refused() -> None:
    assert "more than 10" in check_regex("a" * 11, 10)


atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "\\w", "-", "(a|b)", "(ab)", "(a*)", "(b|)"])
pieces = st.tuples(atoms, st.sampled_from(["", "*", "+", "?", "{2}", "{1,3}", "{0,}"])).map("".join)
patterns = st.lists(pieces, min_size=1, max_size=5).map("".join)


@given(left=patterns, right=patterns, name=st.text("ab-_", max_size=8))
@settings(max_examples=300, deadline=None)
def test_expression_agrees_with_python(left: str, right: str, name: str) -> None:
    pattern = f"{left}|{right}"
    assert Regex.parse(pattern).matches(name) == bool(re.fullmatch(pattern, name, re.ASCII))


def test_expression_that_would_take_python_for_ever_takes_no_time() -> None:
    clock = SystemClock()
    began_s = clock.monotonic_s()
    assert not Regex.parse("(a+)+(a|aa)*b").matches("a" * 249)
    assert not Regex.parse("(.*){20}x").matches("a" * 249)
    assert clock.monotonic_s() - began_s < 1


def test_ten_thousand_names_are_matched_quickly() -> None:
    regex = Regex.parse("team-[0-9]+\\.(orders|payments)\\..*")
    names = [f"team-{number}.orders.region-{number % 7}" for number in range(10_000)]
    clock = SystemClock()
    began_s = clock.monotonic_s()
    assert all(regex.matches(name) for name in names)
    assert clock.monotonic_s() - began_s < 1
