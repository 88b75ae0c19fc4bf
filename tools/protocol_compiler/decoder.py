"""Writes the function that reads one version of one message.

Invariant: the function is flat. Runs of fixed-size fields are one unpack, which also takes the first byte of a length
that follows, and every length is compared with what is left before anything of that size is made.

A request may be longer than its definition, as Kafka allows too: librdkafka leaves bytes behind the end of a Metadata request
for all topics. A response may not.
"""

from __future__ import annotations

from .schema import SIZES, EntityDef, FieldDef
from .source import Source
from .structs import StructDef


def write_decoder(source: Source, name: str, entity: EntityDef, structs: dict[str, StructDef]) -> None:
    """`name(b, p)`: read `entity` from the view `b`, from position `p` to its end."""
    source.begin()
    with source.block(f"def {name}(b, p):"):
        source.line("end = len(b)")
        if entity.holds_arrays:
            source.line("room = MAX_ELEMENTS")
        with source.block("try:"):
            reader = _Reader(source, entity.flexible, structs)
            source.line(f"r = {reader.entity(entity, entity.name)}")
        with source.block("except UNREADABLE as error:"):
            source.line(f'raise unreadable("{entity.name}", p, end, error) from None')
        if not entity.name.endswith("Request"):
            with source.block("if p != end:"):
                source.line(f'raise left_over("{entity.name}", p, end)')
        source.line("return r")


class _Reader:
    def __init__(self, source: Source, flexible: bool, structs: dict[str, StructDef]) -> None:
        self._out = source
        self._flexible = flexible
        self._structs = structs
        self._pending: list[tuple[str, str]] = []  # (format, variable) of fixed-size fields not yet unpacked

    def entity(self, entity: EntityDef, path: str) -> str:
        """Write what reads the fields; the answer is the expression that makes the structure."""
        values = {f.name: self._field(f, f"{path}.{f.name}") for f in entity.fields if f.tag is None}
        if self._flexible:
            values |= self._tags(entity, path)
        self._flush()
        struct = self._structs[entity.name]
        arguments = [values.get(name) or self._default(struct, name) for name in struct.fields]
        while arguments and list(struct.fields)[len(arguments) - 1] not in values:
            arguments.pop()
        return f"{entity.name}({', '.join(arguments)})"

    def _field(self, field: FieldDef, path: str) -> str:
        if field.array:
            return self._array(field, path)
        if field.entity is not None:
            return self._structure(field, field.entity, path)
        return self._primitive(field, path, field.nullable)

    def _structure(self, field: FieldDef, entity: EntityDef, path: str) -> str:
        variable = self._out.fresh("v")
        if not field.nullable or field.tag is not None:
            self._out.line(f"{variable} = {self.entity(entity, path)}")
            return variable
        marker = self._take("b", "q")
        self._flush()
        self._out.line(f"{variable} = None")
        with self._out.block(f"if {marker} >= 0:"):
            self._out.line(f"{variable} = {self.entity(entity, path)}")
        return variable

    def _primitive(self, field: FieldDef, path: str, nullable: bool) -> str:
        if field.format is not None:
            return self._take(field.format, "v")
        size = self._size("h" if field.kind == "string" else "i", path, nullable)
        variable = self._out.fresh("v")
        if nullable:
            self._out.line(f"{variable} = None")
            with self._out.block(f"if {size} >= 0:"):
                self._slice(field.kind, variable, size, path)
        else:
            self._slice(field.kind, variable, size, path)
        return variable

    def _slice(self, kind: str, variable: str, size: str, path: str) -> None:
        with self._out.block(f"if {size} > end - p:"):
            self._out.line(f'raise too_long("{path}", p, {size}, end)')
        taken = f"b[p : p + {size}]"
        text = {"string": f'str({taken}, "utf-8")', "bytes": f"bytes({taken})", "records": taken}[kind]
        self._out.line(f"{variable} = {text}")
        self._out.line(f"p += {size}")

    def _array(self, field: FieldDef, path: str) -> str:
        count = self._size("i", path, field.nullable)
        variable = self._out.fresh("v")
        smallest = field.minimum_element_bytes(self._flexible)
        self._out.line(f"{variable} = {'None if ' + count + ' < 0 else ()' if field.nullable else '()'}")
        with self._out.block(f"if {count} > 0:"):
            self._out.line(f"room -= {count}")
            needed = f"{count} * {smallest}" if smallest > 1 else count
            with self._out.block(f"if {needed} > end - p or room < 0:"):
                self._out.line(f'raise too_many("{path}", p, {count}, end)')
            if field.format is not None and field.format != "16s":
                self._out.line(f"{variable} = {self._out.array(field.format)}[{count}].unpack_from(b, p)")
                self._out.line(f"p += {needed}")
            else:
                self._elements(field, path, variable, count)
        return variable

    def _elements(self, field: FieldDef, path: str, variable: str, count: str) -> None:
        found = self._out.fresh("a")
        self._out.line(f"{found} = []")
        with self._out.block(f"for _ in range({count}):"):
            if field.entity is not None:
                element = self.entity(field.entity, path)
            else:
                element = self._primitive(field, path, nullable=False)
                self._flush()
            self._out.line(f"{found}.append({element})")
        self._out.line(f"{variable} = tuple({found})")

    def _tags(self, entity: EntityDef, path: str) -> dict[str, str]:
        tagged = sorted((f for f in entity.fields if f.tag is not None), key=lambda f: f.tag or 0)
        values = {f.name: self._out.fresh("v") for f in tagged}
        count = self._take("B", "t")
        self._flush()
        for name, variable in values.items():
            self._out.line(f"{variable} = {self._default(self._structs[entity.name], name)}")
        with self._out.block(f"if {count}:"):
            with self._out.block(f"if {count} > 127:"):
                self._out.line(f"{count}, p = read_varint(b, p - 1)")
            if tagged:
                self._known_tags(tagged, values, count, path)
            else:
                self._out.line(f'p = skip_tags(b, p, {count}, "{path}")')
        return values

    def _known_tags(self, tagged: list[FieldDef], values: dict[str, str], count: str, path: str) -> None:
        tag, stop = self._out.fresh("g"), self._out.fresh("e")
        self._out.line(f'check_tags(b, p, {count}, "{path}")')
        with self._out.block(f"for _ in range({count}):"):
            self._out.line(f'p, {tag}, {stop} = open_tag(b, p, "{path}")')
            for index, field in enumerate(tagged):
                with self._out.block(f"{'elif' if index else 'if'} {tag} == {field.tag}:"):
                    found = self._field(field, f"{path}.{field.name}")
                    self._flush()
                    self._out.line(f"{values[field.name]} = {found}")
            with self._out.block("else:"):
                self._out.line(f"p = {stop}")
            with self._out.block(f"if p != {stop}:"):
                self._out.line(f'raise tag_overrun("{path}", p, {stop})')

    def _size(self, legacy: str, path: str, nullable: bool) -> str:
        """A length or count, -1 for null; refused when it is below that or when null is not allowed."""
        size = self._take("B" if self._flexible else legacy, "n")
        self._flush()
        if self._flexible:
            with self._out.block(f"if {size} > 127:"):
                self._out.line(f"{size}, p = read_varint(b, p - 1)")
            self._out.line(f"{size} -= 1")
        if not (self._flexible and nullable):
            with self._out.block(f"if {size} < {-1 if nullable else 0}:"):
                self._out.line(f'raise not_null("{path}", p, {size})')
        return size

    def _take(self, format: str, prefix: str) -> str:
        variable = self._out.fresh(prefix)
        self._pending.append((format, variable))
        return variable

    def _flush(self) -> None:
        if not self._pending:
            return
        formats = "".join(f for f, _ in self._pending)
        variables = [v for _, v in self._pending]
        self._pending.clear()
        if formats == "B":
            self._out.line(f"{variables[0]} = b[p]")
            self._out.line("p += 1")
            return
        self._out.line(
            f"{', '.join(variables)}{',' if len(variables) == 1 else ''} = {self._out.reader(formats)}(b, p)"
        )
        self._out.line(f"p += {_width(formats)}")

    def _default(self, struct: StructDef, name: str) -> str:
        return struct.default(name) or self._out.structure_default(struct.name, name)


def _width(formats: str) -> int:
    return sum(SIZES[f] for f in formats.replace("16s", "")) + 16 * formats.count("16s")
