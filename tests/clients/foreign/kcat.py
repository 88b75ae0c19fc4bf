"""kcat behind the contract of tests/clients/conformance.py: `python kcat.py BOOTSTRAP TOPIC COMMAND ARGUMENT`.

kcat takes one key, one list of headers and one partition a call, so records that share those go in one call; it
cannot set timestamps, and it makes topics only by asking for them.
"""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_PATIENCE_S = 60
_KEY_END = "\x01"
_FORMAT = "%p %o %T %K %S %h\\n%k%s\\n"


def main(bootstrap: str, topic: str, command: str, argument: str) -> None:
    base = ["kcat", "-b", bootstrap, "-t", topic, "-m", str(_PATIENCE_S)]
    if command == "create":
        _call([*base, "-L", "-X", "allow.auto.create.topics=true"])
    elif command == "produce":
        _produce([*base, "-P", "-X", "enable.idempotence=true"], Path(argument))
    elif command == "consume":
        _consume([*base, "-C", "-q", "-e", "-c", argument, "-o", "beginning", "-f", _FORMAT])


def _produce(base: list[str], path: Path) -> None:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        for number, (options, alike) in enumerate(itertools.groupby(records, _options)):
            files, lines = [], b""
            for place, record in enumerate(alike):
                if record["value"]:
                    file = Path(folder) / f"{number}-{place}"
                    file.write_bytes(base64.b64decode(record["value"]))
                    files.append(str(file))
                else:
                    lines += (_bytes(record["key"]) or b"") + _KEY_END.encode() + b"\n"
            _call([*base, *options, *files], lines)


def _options(record: dict[str, Any]) -> list[str]:
    """Empty files and empty lines are passed over in silence: what has no value goes in as a line with a key."""
    options = ["-p", str(record["partition"]), "-z", record["compression"]]
    if not record["value"]:
        options += ["-K", _KEY_END]
    elif record["key"] is not None:
        options += ["-k", base64.b64decode(record["key"]).decode()]
    if record["value"] is None:
        options += ["-Z"]
    for name, value in record["headers"]:
        options += ["-H", name if value is None else f"{name}={base64.b64decode(value).decode()}"]
    return options


def _consume(command: list[str]) -> None:
    """Lengths first, then the bytes they speak of: keys and values may hold anything."""
    printed = _call(command)
    at = 0
    while at < len(printed):
        line_end = printed.index(b"\n", at)
        head = printed[at:line_end].split(b" ", 5)
        partition, offset, timestamp, key_bytes, value_bytes = map(int, head[:5])
        at = line_end + 1
        key, at = _take(printed, at, key_bytes)
        value, at = _take(printed, at, value_bytes)
        at += 1
        record = {"partition": partition, "offset": offset, "timestamp": timestamp, "key": key, "value": value}
        print(json.dumps({**record, "headers": _headers(head[5])}))


def _take(printed: bytes, at: int, size: int) -> tuple[str | None, int]:
    if size < 0:
        return None, at
    return base64.b64encode(printed[at : at + size]).decode(), at + size


def _headers(csv: bytes) -> list[list[str | None]]:
    headers: list[list[str | None]] = []
    for header in csv.split(b",") if csv else []:
        name, _, value = header.partition(b"=")
        headers.append([name.decode(), None if value == b"NULL" else base64.b64encode(value).decode()])
    return headers


def _call(command: list[str], stdin: bytes = b"") -> bytes:
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=_PATIENCE_S)
    if done.returncode != 0:
        sys.exit(f"{command[0]} ended with {done.returncode}: {done.stderr.decode(errors='replace')[-1500:]}")
    return done.stdout


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
