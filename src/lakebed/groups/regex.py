"""Regular expressions over topic names, in the manner of RE2: no look-around, no back references, no exponential time.

An expression is compiled to a small automaton whose sets of states are remembered as they are met, so matching costs
one look-up per character. Invariant: states, remembered sets and expression length are bounded, whatever a client
sends.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from lakebed.errors import Invalid
from lakebed.groups.regex_syntax import AT_END, AT_START, FORK, Automaton, parse

_REMEMBERED_SETS_MAX = 2_000
_COMPILED_MAX = 256


@dataclass(eq=False)
class Regex:
    """A compiled expression."""

    automaton: Automaton
    _steps: dict[tuple[frozenset[int], str], frozenset[int]]
    _start: frozenset[int]

    @staticmethod
    def parse(text: str) -> Regex:
        """Compile `text`; `Invalid` when it is no expression, or one that this engine does not take."""
        return _compiled(text)

    def matches(self, name: str) -> bool:
        """Whether the whole of `name` matches."""
        states = self._start
        for character in name:
            if not states:
                return False
            states = self._step(states, character)
        return self.automaton.accept in self._closed(states, at_start=not name, at_end=True)

    def _step(self, states: frozenset[int], character: str) -> frozenset[int]:
        known = self._steps.get((states, character))
        if known is None:
            bit = 1 << ord(character) if ord(character) < 128 else 0
            nodes = self.automaton.nodes
            moved = frozenset(nodes[state].out for state in states if nodes[state].characters & bit)
            known = self._closed(moved, at_start=False, at_end=False)
            if len(self._steps) >= _REMEMBERED_SETS_MAX:
                self._steps.clear()
            self._steps[states, character] = known
        return known

    def _closed(self, states: frozenset[int], *, at_start: bool, at_end: bool) -> frozenset[int]:
        """The states reached from these without reading a character."""
        reached, left = set(states), list(states)
        while left:
            node = self.automaton.nodes[left.pop()]
            if node.kind == FORK or (node.kind == AT_START and at_start) or (node.kind == AT_END and at_end):
                for target in (node.out, node.other):
                    if target >= 0 and target not in reached:
                        reached.add(target)
                        left.append(target)
        return frozenset(reached)


def check_regex(text: str, length_max: int) -> str:
    """What is wrong with an expression; empty when nothing is."""
    if len(text) > length_max:
        return f"it has {len(text)} characters, more than {length_max}"
    try:
        Regex.parse(text)
    except Invalid as error:
        return error.problem
    return ""


@lru_cache(maxsize=_COMPILED_MAX)
def _compiled(text: str) -> Regex:
    regex = Regex(parse(text), {}, frozenset())
    regex._start = regex._closed(frozenset([regex.automaton.start]), at_start=True, at_end=False)
    return regex
