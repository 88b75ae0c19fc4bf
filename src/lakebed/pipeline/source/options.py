"""What a person may say to the source and the sink, read once and checked before anything starts.

Settings hold secrets and are not sent to tasks: what travels is the place they are read from.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from lakebed.clock import unix_ms
from lakebed.config import Settings, load_settings
from lakebed.errors import Invalid
from lakebed.records import Codec

EARLIEST, LATEST = -2, -1
"""Kafka's numbers for the two ends of a partition."""

CONFIG_VARIABLE = "LAKEBED_CONFIG"
_TASK_BYTES = 128 << 20
_WORDS = {"earliest": EARLIEST, "latest": LATEST}


@dataclass(frozen=True, slots=True)
class Place:
    """Where settings are read from, on the driver as on executors: a file, and a root that wins over what it says."""

    root: str | None = None
    config: str | None = None

    def settings(self) -> Settings:
        """The settings, secrets included, as this process finds them."""
        overrides = {} if self.root is None else {"root": self.root}
        return load_settings(None if self.config is None else Path(self.config), os.environ, overrides).settings

    @classmethod
    def here(cls, root: str | None = None, config: str | None = None) -> Place:
        """The place that this process means, spelled so that processes in other folders find it too."""
        config = config or os.environ.get(CONFIG_VARIABLE)
        place = cls(root, None if config is None else str(Path(config).absolute()))
        found = place.settings().root
        return cls(found if "://" in found else str(Path(found).absolute()), place.config)


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where to begin or end: `default` for partitions that `given` does not name."""

    default: int
    given: Mapping[int, int]

    def of(self, partition: int) -> int:
        return self.given.get(partition, self.default)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a topic is read."""

    place: Place
    topic: str
    columns: tuple[str, ...]
    as_of_version: int | None
    as_of_ms: int | None
    starting: Offsets
    ending: Offsets
    task_bytes_max: int
    tasks_min: int | None
    trigger_offsets_max: int | None
    trigger_bytes_max: int | None
    fail_on_data_loss: bool
    fail_on_undecodable: bool
    pushdown: bool
    one_version: bool


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a topic is written."""

    place: Place
    topic: str
    codec: Codec
    query_id: str | None
    epoch: int | None


def read_options(options: Mapping[str, str], default: Place, *, stream: bool) -> ReadOptions:
    """The options of a read. Streams begin at the end unless told otherwise, as Kafka's do."""
    text = _Texts(options)
    topic = text.topic()
    version, moment = text.whole("asOfVersion", 0), text.get("asOfTimestamp")
    if version is not None and moment is not None:
        raise Invalid("asOfVersion and asOfTimestamp exclude each other", "Give one of them")
    if stream and (version is not None or moment is not None):
        raise Invalid("a stream has no end to be read as of", "Use startingOffsets, or read without readStream")
    return ReadOptions(
        place=text.place(default),
        topic=topic,
        columns=tuple(name.strip() for name in (text.get("columns") or "").split(",") if name.strip()),
        as_of_version=version,
        as_of_ms=None if moment is None else _moment_ms(moment),
        starting=text.offsets("startingOffsets", LATEST if stream else EARLIEST, topic),
        ending=text.offsets("endingOffsets", LATEST, topic),
        task_bytes_max=text.whole("maxPartitionBytes", 1) or _TASK_BYTES,
        tasks_min=text.whole("minPartitions", 1),
        trigger_offsets_max=text.whole("maxOffsetsPerTrigger", 1),
        trigger_bytes_max=text.whole("maxBytesPerTrigger", 1),
        fail_on_data_loss=text.switch("failOnDataLoss", True),
        fail_on_undecodable=text.choice("undecodable", ("skip", "fail"), "skip") == "fail",
        pushdown=text.switch("pushdown", False),
        one_version=text.switch("oneVersion", False),
    )


def write_options(options: Mapping[str, str], default: Place) -> WriteOptions:
    """The options of a write."""
    text = _Texts(options)
    query_id, epoch = text.get("queryId"), text.whole("epoch", 0)
    if epoch is not None and query_id is None:
        raise Invalid("an epoch belongs to a query", "Give queryId too")
    if query_id is not None and not 0 < len(query_id) <= 200:
        raise Invalid(f"a queryId of {len(query_id)} characters", "Use 1 to 200")
    codecs = tuple(codec.name.lower() for codec in Codec)
    return WriteOptions(
        place=text.place(default),
        topic=text.topic(),
        codec=Codec[text.choice("compression", codecs, "none").upper()],
        query_id=query_id,
        epoch=epoch,
    )


class _Texts:
    """Options by name, whatever the case of their letters."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}

    def get(self, name: str) -> str | None:
        return self._options.get(name.lower())

    def place(self, default: Place) -> Place:
        root, config = self.get("root"), self.get("config")
        return Place.here(root, config) if root or config else default

    def topic(self) -> str:
        topic, path = self.get("topic"), self.get("path")
        if topic and path and topic != path:
            raise Invalid(f"topic {topic!r} and path {path!r} differ", "Name the topic once")
        if not (topic or path):
            raise Invalid("no topic is named", "Give it to load() or save(), or as option 'topic'")
        return topic or path or ""

    def whole(self, name: str, least: int) -> int | None:
        text = self.get(name)
        if text is None:
            return None
        if not (text.strip().isascii() and text.strip().isdigit()) or int(text) < least:
            raise Invalid(f"{name} is {text!r}", f"Give a whole number, at least {least}")
        return int(text)

    def switch(self, name: str, default: bool) -> bool:
        return self.choice(name, ("true", "false"), "true" if default else "false") == "true"

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        text = (self.get(name) or default).lower()
        if text not in choices:
            raise Invalid(f"{name} is {text!r}", f"Use one of {', '.join(choices)}")
        return text

    def offsets(self, name: str, default: int, topic: str) -> Offsets:
        text = self.get(name)
        if text is None:
            return Offsets(default, {})
        word = _WORDS.get(text.strip().lower())
        return Offsets(default, _offsets_of(name, text, topic)) if word is None else Offsets(word, {})


def _offsets_of(name: str, text: str, topic: str) -> dict[int, int]:
    """`{"orders": {"0": 23, "1": -2}}` as in Kafka's source, or just `{"0": 23}`."""
    try:
        said = msgspec.json.decode(text, type=dict[str, int | dict[str, int]])
        inner = said.get(topic, said)
        assert isinstance(inner, dict)
        found = {int(partition): offset for partition, offset in inner.items() if isinstance(offset, int)}
        if len(found) != len(inner) or any(offset < EARLIEST for offset in found.values()):
            raise ValueError(text)
    except (msgspec.DecodeError, ValueError) as error:
        raise Invalid(
            f"{name} is {text[:200]!r}", f'Use earliest, latest, or JSON such as {{"{topic}": {{"0": 23}}}}'
        ) from error
    return found


def _moment_ms(text: str) -> int:
    """Milliseconds since 1970, or a date and time; without a zone it is UTC."""
    if text.strip().isascii() and text.strip().isdigit():
        return int(text)
    try:
        return unix_ms(text.strip())
    except ValueError as error:
        raise Invalid(f"asOfTimestamp is {text!r}", "Give 2026-11-15T06:20:31Z, or milliseconds since 1970") from error
