"""Writes the function that writes one version of one message.

Invariant: payloads are appended as the caller's own buffers. A field that the version lacks may only be dropped when
Kafka calls it ignorable; any other must stand at its default.
"""

from __future__ import annotations

from .schema import EntityDef, FieldDef
from .source import Source
from .strict import STRICT_FIELDS
from .structs import StructDef


def write_encoder(source: Source, name: str, entity: EntityDef, structs: dict[str, StructDef]) -> None:
    """`name(r, out, cuts)`: append the pieces of `r` to `out`, and to `cuts` the indexes of large payloads."""
    source.begin()
    with source.block(f"def {name}(r, out, cuts):"):
        source.line("w = out.append")
        with source.block("try:"):
            writer = _Writer(source, entity.flexible, structs, entity.name)
            writer.entity(entity, "r", entity.name)
            writer.flush()
            if not entity.fields and not entity.flexible:
                source.line("pass")
        with source.block("except UNWRITABLE as error:"):
            source.line(f'raise unwritable("{entity.name}", error) from error')


class _Writer:
    def __init__(self, source: Source, flexible: bool, structs: dict[str, StructDef], message: str) -> None:
        self._out = source
        self._flexible = flexible
        self._structs = structs
        self._message = message
        self._append = "w"
        self._pending: list[tuple[str, str]] = []  # (format, expression) of fixed-size fields not yet packed

    def entity(self, entity: EntityDef, value: str, path: str) -> None:
        self._refuse_what_is_lost(entity, value, path)
        for field in entity.fields:
            if field.tag is None:
                self._field(field, f"{value}.{field.name}", f"{path}.{field.name}")
        if not self._flexible:
            return
        tagged = sorted((f for f in entity.fields if f.tag is not None), key=lambda f: f.tag or 0)
        if tagged:
            self._tags(tagged, entity.name, value, path)
        else:
            self._pending.append(("B", "0"))

    def flush(self) -> None:
        if not self._pending:
            return
        formats = "".join(f for f, _ in self._pending)
        values = [v for _, v in self._pending]
        self._pending.clear()
        if formats == "B" and values == ["0"]:
            self._put('b"\\0"')
        elif formats == "16s":
            self._put(values[0])
        else:
            self._put(f"{self._out.packer(formats)}({', '.join(values)})")

    def _refuse_what_is_lost(self, entity: EntityDef, value: str, path: str) -> None:
        present = {f.name for f in entity.fields}
        struct = self._structs[entity.name]
        for name, field in struct.fields.items():
            if name in present or f"{entity.name}.{name}" not in STRICT_FIELDS.get(self._message, ()):
                continue
            with self._out.block(f"if {self._differs(struct, field, f'{value}.{name}')}:"):
                self._out.line(f'raise not_in_version("{path}.{name}")')

    def _differs(self, struct: StructDef, field: FieldDef, value: str) -> str:
        """An expression that is true when the value is not the default."""
        if field.default is None:
            return f"{value} is not None"
        if field.array:
            return value
        default = struct.default(field.name)
        if default is None:
            default = self._out.structure_default(struct.name, field.name)
            return f"{value} is not {default} and {value} != {default}"
        return f"{value} != {default}"

    def _field(self, field: FieldDef, value: str, path: str) -> None:
        if field.array:
            self._array(field, value, path)
        elif field.entity is not None:
            self._structure(field, field.entity, value, path)
        else:
            self._primitive(field, value, path, field.nullable)

    def _structure(self, field: FieldDef, entity: EntityDef, value: str, path: str) -> None:
        name = self._name(value, "o")
        if not field.nullable or field.tag is not None:
            self.entity(entity, name, path)
            return
        self.flush()
        with self._out.block(f"if {name} is None:"):
            self._put('b"\\xff"')
        with self._out.block("else:"):
            self._pending.append(("b", "1"))
            self.entity(entity, name, path)
            self.flush()

    def _primitive(self, field: FieldDef, value: str, path: str, nullable: bool) -> None:
        if field.format is not None:
            if field.format == "16s":
                value = self._name(value, "u")
                with self._out.block(f"if len({value}) != 16:"):
                    self._out.line(f'raise not_a_uuid("{path}")')
            self._pending.append((field.format, value))
            return
        self.flush()
        name = self._name(value, "s")
        wide = field.kind != "string"
        if not nullable:
            self._sized(field.kind, name, wide)
            return
        with self._out.block(f"if {name} is None:"):
            self._put(self._null(wide))
        with self._out.block("else:"):
            self._sized(field.kind, name, wide)

    def _sized(self, kind: str, name: str, wide: bool) -> None:
        if kind == "string":
            self._out.line(f"{name} = {name}.encode()")
        measure = "payload_size" if kind == "records" else "len"
        self._put(self._count(f"{measure}({name})", "i" if wide else "h"))
        if kind == "records":
            self._out.line(f"put_payload({name}, out, cuts)")
        else:
            self._put(name)

    def _array(self, field: FieldDef, value: str, path: str) -> None:
        self.flush()
        name = self._name(value, "a")
        if not field.nullable:
            self._elements(field, name, path)
            return
        with self._out.block(f"if {name} is None:"):
            self._put(self._null(wide=True))
        with self._out.block("else:"):
            self._elements(field, name, path)

    def _elements(self, field: FieldDef, name: str, path: str) -> None:
        self._put(self._count(f"len({name})", "i"))
        if field.format is not None and field.format != "16s":
            self._put(f"{self._out.array(field.format)}[len({name})].pack(*{name})")
            return
        element = self._out.fresh("x")
        with self._out.block(f"for {element} in {name}:"):
            if field.entity is not None:
                self.entity(field.entity, element, path)
            else:
                self._primitive(field, element, path, nullable=False)
            self.flush()

    def _tags(self, tagged: list[FieldDef], owner: str, value: str, path: str) -> None:
        self.flush()
        struct = self._structs[owner]
        conditions = [self._differs(struct, f, f"{value}.{f.name}") for f in tagged]
        found, count = self._out.fresh("g"), self._out.fresh("k")
        with self._out.block(f"if {' or '.join(f'({c})' if ' and ' in c else c for c in conditions)}:"):
            self._out.line(f"{found} = []")
            self._out.line(f"{count} = 0")
            for field, condition in zip(tagged, conditions, strict=True):
                with self._out.block(f"if {condition}:"):
                    self._tag(field, found, f"{value}.{field.name}", f"{path}.{field.name}")
                    self._out.line(f"{count} += 1")
            self._put(f"VARINTS[{count}]")
            self._put(f'b"".join({found})')
        with self._out.block("else:"):
            self._put('b"\\0"')

    def _tag(self, field: FieldDef, found: str, value: str, path: str) -> None:
        outer, pieces = self._append, self._out.fresh("c")
        self._out.line(f"{pieces} = []")
        self._append = f"{pieces}.append"
        self._field(field, value, path)
        self.flush()
        self._append = outer
        self._out.line(f'{pieces} = b"".join({pieces})')
        self._out.line(f"{found} += (VARINTS[{field.tag}], VARINTS[len({pieces})], {pieces})")

    def _count(self, length: str, legacy: str) -> str:
        return f"VARINTS[{length} + 1]" if self._flexible else f"{self._out.packer(legacy)}({length})"

    def _null(self, wide: bool) -> str:
        if self._flexible:
            return 'b"\\0"'
        return 'b"\\xff\\xff\\xff\\xff"' if wide else 'b"\\xff\\xff"'

    def _name(self, value: str, prefix: str) -> str:
        name = self._out.fresh(prefix)
        self._out.line(f"{name} = {value}")
        return name

    def _put(self, expression: str) -> None:
        self._out.line(f"{self._append}({expression})")
