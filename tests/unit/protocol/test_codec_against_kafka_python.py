"""Where kafka-python has the schema, it reads what we write, and writes the same bytes; and it knows what is ignorable."""

from __future__ import annotations

import importlib
import os
import pkgutil
import random
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka.protocol
import msgspec
import pytest
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.schemas import load_json
from kio_oracle import every_schema, random_message, schema, written

from lakebed.protocol import Api, Buffer, decode_request, decode_response
from lakebed.protocol.codec import encode_request, encode_response

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
from protocol_compiler.strict import STRICT_FIELDS

SOAK = bool(os.environ.get("LAKEBED_SOAK"))
DRAWS = 50 if SOAK else 2
pytestmark = [pytest.mark.slow] if SOAK else []
ABSENT = {Api.CONSUMER_GROUP_HEARTBEAT, Api.CONSUMER_GROUP_DESCRIBE, Api.GET_TELEMETRY_SUBSCRIPTIONS}


def all_classes() -> dict[str, Any]:
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" not in module.name and "generate" not in module.name:
            importlib.import_module(module.name)
    found: dict[str, Any] = {}
    waiting = [ApiMessage]
    while waiting:
        kind = waiting.pop()
        children = type.__subclasses__(kind)
        found |= {child.__name__: child for child in children}
        waiting += children
    return found


with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
    CLASSES = all_classes()


@pytest.mark.parametrize("api", [api for api in Api if api not in ABSENT])
def test_random_messages_read_and_written_as_by_kafka_python(api: Api) -> None:
    for key, version, half in every_schema():
        if key != api:
            continue
        chance = random.Random(f"{api}-{version}-{half}")
        request = half == "request"
        for _ in range(DRAWS):
            raw = written(random_message(schema(api, version, half), chance))
            ours = (decode_request if request else decode_response)(api, version, raw)
            if api == Api.API_VERSIONS and not request:
                ours = msgspec.structs.replace(ours, error_code=0)  # it reads any other as version 0
            pieces: list[Buffer] = []
            (encode_request if request else encode_response)(api, version, ours, pieces, [])
            theirs = CLASSES[type(ours).__name__].decode(b"".join(pieces), version=version)
            theirs._header = None
            assert bytes(theirs.encode(version=version)) == b"".join(pieces), (version, half)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_strict_fields_are_those_that_kafka_does_not_call_ignorable() -> None:
    expected: dict[str, set[str]] = {}
    for key, _, half in every_schema():
        spans = [version for k, version, h in every_schema() if (k, h) == (key, half)]
        name = schema(key, spans[-1], half).__name__
        if name in CLASSES and name not in expected:
            expected[name] = set(_strict(load_json(name)["fields"], name, spans))
    known = {name: set(STRICT_FIELDS.get(name, ())) for name in expected}
    assert known == expected


def _strict(fields: list[dict[str, Any]], owner: str, versions: list[int]) -> Iterator[str]:
    for field in fields:
        present = [version for version in versions if version in _span(field["versions"])]
        ignorable = str(field.get("ignorable", False)).lower() == "true"
        if present and len(present) < len(versions) and not ignorable:
            words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", field["name"]).lower()
            yield f"{owner}.{words}"
        yield from _strict(field.get("fields", []), field["type"].strip("[]"), present)


def _span(text: str) -> range:
    first, _, last = text.rstrip("+").partition("-")
    return range(int(first), 1000 if text.endswith("+") else int(last or first) + 1)
