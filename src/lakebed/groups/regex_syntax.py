"""From the text of a regular expression to an automaton: literals, classes, groups, `|`, `* + ? {m,n}`, anchors.

Topic names are ASCII, so a set of characters is a number with a bit for each of the 128; what is not ASCII matches
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lakebed.errors import Invalid

MATCH, FORK, AT_START, AT_END = range(4)
"""Kinds of nodes: reads a character, reads none, reads none but only at the start or the end."""

_NODES_MAX = 4_000
_REPEAT_MAX = 1_000
_DEPTH_MAX = 50
_ALL = (1 << 128) - 1
_REMEDY = "Use the syntax of RE2 without look-around, back references and word boundaries"


def _span(*pairs: str) -> int:
    return sum(1 << code for pair in pairs for code in range(ord(pair[0]), ord(pair[1]) + 1))


_DIGIT, _UPPER, _LOWER = _span("09"), _span("AZ"), _span("az")
_WORD = _DIGIT | _UPPER | _LOWER | 1 << ord("_")
_SPACE = sum(1 << ord(each) for each in " \t\n\r\f\v")
_PUNCTUATION = _span("!/", ":@", "[`", "{~")
_SYMBOL = sum(1 << ord(each) for each in "$+<=>^`|~")
_ESCAPED_SETS = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_ESCAPED_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_PROPERTIES = {
    "L": _UPPER | _LOWER,
    "Lu": _UPPER,
    "Ll": _LOWER,
    "N": _DIGIT,
    "Nd": _DIGIT,
    "P": _PUNCTUATION & ~_SYMBOL,
    "S": _SYMBOL,
    "Latin": _UPPER | _LOWER,
}
_NAMED = {
    "alnum": _DIGIT | _UPPER | _LOWER,
    "alpha": _UPPER | _LOWER,
    "digit": _DIGIT,
    "lower": _LOWER,
    "upper": _UPPER,
    "punct": _PUNCTUATION,
    "space": _SPACE,
    "word": _WORD,
    "xdigit": _DIGIT | _span("af", "AF"),
}


@dataclass(slots=True)
class Node:
    """A state: where it leads, and by which characters. -1 leads nowhere yet."""

    kind: int
    characters: int = 0
    out: int = -1
    other: int = -1


@dataclass(slots=True)
class Automaton:
    """Nodes, with one to begin at and one to end at."""

    nodes: list[Node] = field(default_factory=list)
    start: int = 0
    accept: int = 0


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of an automaton with one way in and one way out, the latter a fork that is still free."""

    first: int
    last: int


def parse(text: str) -> Automaton:
    """`Invalid` when `text` is no expression that we take."""
    parser = _Parser(text)
    piece = parser.alternatives(0)
    if parser.position < len(text):
        raise parser.refused("has a ) without its (")
    parser.automaton.start, parser.automaton.accept = piece.first, piece.last
    return parser.automaton


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.automaton = Automaton()
        self.ignore_case = False

    def refused(self, why: str) -> Invalid:
        return Invalid(f"the expression {why} at character {self.position}", _REMEDY)

    def alternatives(self, depth: int) -> _Piece:
        if depth > _DEPTH_MAX:
            raise self.refused("is nested too deeply")
        found = self._sequence(depth)
        while self._take("|"):
            other = self._sequence(depth)
            start, end = self._fork(found.first, other.first), self._fork()
            self._lead(found.last, end)
            self._lead(other.last, end)
            found = _Piece(start, end)
        return found

    def _sequence(self, depth: int) -> _Piece:
        first = last = self._fork()
        while self.position < len(self.text) and self.text[self.position] not in "|)":
            piece = self._repeated(depth)
            self._lead(last, piece.first)
            last = piece.last
        return _Piece(first, last)

    def _repeated(self, depth: int) -> _Piece:
        began, case = self.position, self.ignore_case
        piece = self._atom(depth)
        behind = self.position
        bounds = self._bounds()
        if bounds is None:
            return piece
        self._take("?")  # lazy or greedy: the same names match
        ended = self.position
        if self._bounds() is not None:
            raise self.refused("repeats a repetition")
        copies = [piece]
        for _ in range(max(bounds[0], bounds[1] or 1) - 1):
            self.position, self.ignore_case = began, case
            copies.append(self._atom(depth))
            self.position = behind
        self.position = ended
        return self._chain(copies, bounds[0], bounds[1])

    def _chain(self, copies: list[_Piece], least: int, most: int | None) -> _Piece:
        start = last = self._fork()
        end = self._fork()
        for index, piece in enumerate(copies):
            if index >= least:
                last = self._onward(last, end)
            if most == 0:
                break
            self._lead(last, piece.first)
            last = piece.last
        if most is None:
            last = self._onward(last, copies[-1].first)
        self._lead(last, end)
        return _Piece(start, end)

    def _onward(self, last: int, also: int) -> int:
        """A fork after `last` that may also lead to `also`."""
        fork = self._fork(-1, also)
        self._lead(last, fork)
        return fork

    def _bounds(self) -> tuple[int, int | None] | None:
        for mark, least, most in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self._take(mark):
                return least, most
        if not self._take("{"):
            return None
        body, found, _ = self.text[self.position :].partition("}")
        low, comma, high = body.partition(",")
        if not found or not low.isdecimal() or not (high == "" or high.isdecimal()) or len(body) > 9:
            raise self.refused("has a { that is no repetition")
        self.position += len(body) + 1
        bounds = (int(low), int(high) if high else (None if comma else int(low)))
        if (
            bounds[0] > (bounds[1] if bounds[1] is not None else bounds[0])
            or max(bounds[0], bounds[1] or 0) > _REPEAT_MAX
        ):
            raise self.refused("has a repetition that is upside down or too large")
        return bounds

    def _atom(self, depth: int) -> _Piece:
        character = self._next()
        if character == "(":
            return self._group(depth)
        if character in "*+?{":
            raise self.refused("repeats nothing")
        if character == "^":
            return self._single(AT_START)
        if character == "$":
            return self._single(AT_END)
        if character == ".":
            return self._single(MATCH, _ALL & ~(1 << ord("\n")))
        if character == "[":
            return self._single(MATCH, self._class())
        if character == "\\":
            return self._escape_atom()
        return self._single(MATCH, _bit(character))

    def _group(self, depth: int) -> _Piece:
        case = self.ignore_case
        if self._take("?"):
            if self._take("P<") or self._take("<"):
                name, found, _ = self.text[self.position :].partition(">")
                if not found or not name.isidentifier():
                    raise self.refused("has a group with a bad name")
                self.position += len(name) + 1
            elif self._flags():
                return self._single(FORK)
        piece = self.alternatives(depth + 1)
        if not self._take(")"):
            raise self.refused("has a ( without its )")
        self.ignore_case = case
        return piece

    def _flags(self) -> bool:
        """Read `i:`, `-i)` and the like; whether the flags hold for the rest of the group around them."""
        on = True
        while (character := self._next()) not in ":)":
            if character == "-":
                on = False
            elif character == "i":
                self.ignore_case = on
            elif character not in "smU":
                raise self.refused("has a group of a kind that is not taken")
        return character == ")"

    def _escape_atom(self) -> _Piece:
        character = self.text[self.position : self.position + 1]
        if character in ("A", "z") and character:
            self.position += 1
            return self._single(AT_START if character == "A" else AT_END)
        if self._take("Q"):
            body, found, _ = self.text[self.position :].partition("\\E")
            self.position += len(body) + (2 if found else 0)
            piece = self._single(FORK)
            for each in body:
                follows = self._single(MATCH, _bit(each))
                self._lead(piece.last, follows.first)
                piece = _Piece(piece.first, follows.last)
            return piece
        return self._single(MATCH, self._escape())

    def _escape(self) -> int:
        character = self._next()
        if character in "dws":
            return _ESCAPED_SETS[character]
        if character in "DWS":
            return _ALL & ~_ESCAPED_SETS[character.lower()]
        if character in "pP":
            characters = self._property()
            return characters if character == "p" else _ALL & ~characters
        if character == "x":
            return _bit(self._hexadecimal())
        if character in _ESCAPED_CHARACTERS:
            return _bit(_ESCAPED_CHARACTERS[character])
        if character.isalnum():
            raise self.refused(f"has \\{character}, which is not taken,")
        return _bit(character)

    def _property(self) -> int:
        name = self._braced() if self._take("{") else self._next()
        negated, name = name.startswith("^"), name.lstrip("^")
        if name not in _PROPERTIES:
            raise self.refused("names a property that is not taken")
        return _ALL & ~_PROPERTIES[name] if negated else _PROPERTIES[name]

    def _hexadecimal(self) -> str:
        digits = self._braced() if self._take("{") else self._next() + self._next()
        if not digits or len(digits) > 6 or any(each not in "0123456789abcdefABCDEF" for each in digits):
            raise self.refused("has a \\x that is no number")
        code = int(digits, 16)
        return chr(code) if code < 128 else "\x80"

    def _braced(self) -> str:
        body, found, _ = self.text[self.position :].partition("}")
        if not found:
            raise self.refused("has a { without its }")
        self.position += len(body) + 1
        return body

    def _class(self) -> int:
        negated, characters, first = self._take("^"), 0, True
        while first or self.text[self.position : self.position + 1] != "]":
            first = False
            if self._take("[:"):
                characters |= self._named()
                continue
            characters |= self._class_range()
        self.position += 1
        if self.ignore_case:
            characters = _both_cases(characters)
        return _ALL & ~characters if negated else characters

    def _class_range(self) -> int:
        low, single = self._class_member()
        ahead = self.text[self.position : self.position + 2]
        if not single or not ahead.startswith("-") or ahead == "-]":
            return low
        self.position += 1
        high, single = self._class_member()
        if not single or 0 < high < low:
            raise self.refused("has a range that is upside down")
        if not low:
            return 0
        return 2 * high - low if high else _ALL & ~(low - 1)

    def _class_member(self) -> tuple[int, bool]:
        """The characters that one member stands for, and whether it is a single one."""
        character = self._next()
        characters = self._escape() if character == "\\" else _bit(character)
        return characters, characters.bit_count() <= 1

    def _named(self) -> int:
        name, found, _ = self.text[self.position :].partition(":]")
        negated, name = name.startswith("^"), name.lstrip("^")
        if not found or name not in _NAMED:
            raise self.refused("names a class that there is not")
        self.position += len(name) + negated + 2
        return _ALL & ~_NAMED[name] if negated else _NAMED[name]

    def _next(self) -> str:
        if self.position >= len(self.text):
            raise self.refused("ends too early")
        self.position += 1
        return self.text[self.position - 1]

    def _take(self, mark: str) -> bool:
        found = self.text.startswith(mark, self.position)
        if found:
            self.position += len(mark)
        return found

    def _single(self, kind: int, characters: int = 0) -> _Piece:
        if kind == MATCH and self.ignore_case:
            characters = _both_cases(characters)
        end = self._fork()
        return _Piece(self._node(Node(kind, characters, end)), end)

    def _fork(self, out: int = -1, other: int = -1) -> int:
        return self._node(Node(FORK, 0, out, other))

    def _node(self, node: Node) -> int:
        nodes = self.automaton.nodes
        if len(nodes) >= _NODES_MAX:
            raise self.refused("is too large when it is written out")
        nodes.append(node)
        return len(nodes) - 1

    def _lead(self, source: int, target: int) -> None:
        """Let a fork whose first way is free lead to `target`."""
        self.automaton.nodes[source].out = target


def _bit(character: str) -> int:
    return 1 << ord(character) if ord(character) < 128 else 0


def _both_cases(characters: int) -> int:
    upper, lower = characters & _UPPER, characters & _LOWER
    return characters | upper << 32 | lower >> 32
