"""`lakebed log`: look inside a commit log. Nothing here commits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import click
import msgspec

from lakebed.cli.opening import DEFAULT_LOG, opened_log, opened_store
from lakebed.cli.options import Call, Command, common_options
from lakebed.cli.tables import print_facts, print_rows
from lakebed.errors import EXIT_DONE, EXIT_FAILED, Invalid, NotFound
from lakebed.kernel import (
    Commit,
    CommitLog,
    Operation,
    Snapshot,
    Stream,
    Verification,
    Version,
    floor_of,
    oldest_version,
    verify,
)
from lakebed.streams import registry_of

_SHOWN_MAX = 100_000
_VALUE_WIDTH = 80

Look = Callable[[CommitLog], Awaitable[None]]


@click.group("log")
def command() -> None:
    """Look inside a commit log."""


_log_option = click.option("--log", "name", default=DEFAULT_LOG, show_default=True, help="cluster, lake or domain=NN.")
_version_option = click.option(
    "--version", type=click.IntRange(0), help="The version to look at.  [default: the newest]"
)


@command.command(
    "show",
    cls=Command,
    examples=[
        ("lakebed log show", "What this log is, and its newest commit"),
        ("lakebed log show --version 11 --json", "One commit as it is stored"),
    ],
)
@_log_option
@_version_option
@common_options
def show(call: Call, name: str, version: int | None) -> None:
    """Show what a log is, and one commit of it."""

    async def look(log: CommitLog) -> None:
        newest = await log.snapshot()
        commit = await _commit(log, newest, newest.version if version is None else Version(version))
        if call.output.as_json:
            call.output.document({"log": _about(log, newest), "commit": commit})
            return
        print_facts(_about(log, newest))
        print_facts({"version": commit.version, "timestamp": commit.timestamp, "txn_id": commit.txn_id})
        for operation in islice(commit.operations, _SHOWN_MAX):
            call.output.text(msgspec.json.encode(operation).decode())

    _run(call, name, look)


@command.command(
    "history",
    cls=Command,
    examples=[
        ("lakebed log history --limit 50", "The newest fifty commits"),
        ("lakebed log history --version 120 --json", "Up to version 120, one JSON document a line"),
    ],
)
@_log_option
@_version_option
@click.option("--limit", type=click.IntRange(1, _SHOWN_MAX), default=20, show_default=True, help="How many commits.")
@common_options
def history(call: Call, name: str, version: int | None, limit: int) -> None:
    """List commits, the newest last."""

    async def look(log: CommitLog) -> None:
        newest = await log.snapshot()
        last = newest.version if version is None else _known(log, newest, Version(version))
        first = max(oldest_version(newest), last - limit + 1)
        rows = [_row(commit) async for commit in _commits(log, Version(first), last)]
        if call.output.as_json:
            for row in rows:
                call.output.line(row)
        else:
            print_rows(rows)

    _run(call, name, look)


@command.command(
    "state",
    cls=Command,
    examples=[
        ("lakebed log state", "Keys and streams as they are now"),
        ("lakebed log state --version 11 --prefix topic/", "Some keys as they were at version 11"),
        ("lakebed log state --at 2026-11-15T06:20:31Z --json", "Everything as it was at a moment"),
    ],
)
@_log_option
@_version_option
@click.option("--at", metavar="TIME", help="The moment to look at, such as 2026-11-15T06:20:31Z.")
@click.option("--prefix", default="", help="Only keys that begin so.")
@click.option("--limit", type=click.IntRange(1, _SHOWN_MAX), default=1000, show_default=True, help="How many of each.")
@common_options
def state(call: Call, name: str, version: int | None, at: str | None, prefix: str, limit: int) -> None:
    """Show keys and streams, now or at an old version or moment."""
    if version is not None and at is not None:
        raise Invalid("--version and --at are both given", "Give one of them")
    at_ms = None if at is None else _moment_ms(at)

    async def look(log: CommitLog) -> None:
        snapshot = await log.snapshot(None if version is None else Version(version), at_ms)
        keys = list(islice(_keys(snapshot, prefix), limit))
        streams = [_stream(number, stream) for number, stream in islice(snapshot.streams(), limit)]
        if call.output.as_json:
            facts = {"version": snapshot.version, "timestamp": snapshot.timestamp}
            call.output.document({**facts, "keys": keys, "streams": streams})
            return
        print_facts({"version": snapshot.version, "timestamp": snapshot.timestamp})
        print_rows([{**key, "value": _short(key["value"])} for key in keys])
        print_rows(streams)

    _run(call, name, look)


@command.command(
    "verify",
    cls=Command,
    examples=[
        ("lakebed log verify", "Read everything and hold it against everything else"),
        ("lakebed log verify --log cluster --json", "The same for a machine; exit code 1 when something is wrong"),
    ],
)
@_log_option
@common_options
def verify_log(call: Call, name: str) -> int:
    """Read every document of a log and report all damage."""

    async def look() -> Verification:
        async with opened_store(call.settings, name) as store:
            return await verify(store, registry_of(name))

    found = asyncio.run(look())
    if call.output.as_json:
        call.output.document(found)
    else:
        facts = msgspec.structs.asdict(found)
        findings = facts.pop("findings")
        print_facts(facts)
        print_rows([msgspec.structs.asdict(finding) for finding in findings])
        call.output.text("nothing is wrong" if found.ok else f"{len(findings)} findings")
    return EXIT_DONE if found.ok else EXIT_FAILED


def _run(call: Call, name: str, look: Look) -> None:
    async def run() -> None:
        async with opened_log(call.settings, name) as log:
            await look(log)

    asyncio.run(run())


def _about(log: CommitLog, newest: Snapshot) -> dict[str, Any]:
    identity, floor = log.identity, floor_of(newest)
    return {
        "name": log.name,
        "log_id": identity.log_id,
        "root_id": identity.root_id,
        "format": identity.format,
        "newest": newest.version,
        "oldest": oldest_version(newest),
        "floor": floor.version,
        "committed": newest.timestamp,
        "state_bytes": newest.weight_bytes,
    }


async def _commit(log: CommitLog, newest: Snapshot, version: Version) -> Commit:
    wanted = _known(log, newest, version)
    async for commit in _commits(log, wanted, wanted):
        return commit
    raise NotFound(f"{log.name} has lost version {wanted}", "Run 'lakebed log history' to see what is there")


async def _commits(log: CommitLog, first: Version, last: Version) -> AsyncIterator[Commit]:
    """The commits first to last, both included."""
    async for commit in log.changes(Version(first - 1)):
        yield commit
        if commit.version >= last:
            return


def _known(log: CommitLog, newest: Snapshot, version: Version) -> Version:
    oldest = oldest_version(newest)
    if not oldest <= version <= newest.version:
        raise NotFound(f"{log.name} has no version {version}", f"Ask for one from {oldest} to {newest.version}")
    return version


def _row(commit: Commit) -> dict[str, Any]:
    kinds = Counter(_kind(operation) for operation in commit.operations)
    shared = len({operation.txn for operation in commit.operations}) or 1
    return {
        "version": commit.version,
        "timestamp": commit.timestamp,
        "txn_id": commit.txn_id,
        "transactions": shared,
        "operations": dict(kinds),
        "checkpoint": commit.checkpoint_hint,
    }


def _kind(operation: Operation) -> str:
    return str(operation.__struct_config__.tag)


def _keys(snapshot: Snapshot, prefix: str) -> Iterator[dict[str, Any]]:
    for key, entry in snapshot.scan(prefix):
        if not key.startswith(prefix):
            return
        yield {"key": key, "version": entry.version, "value": msgspec.Raw(entry.value)}


def _stream(number: int, stream: Stream) -> dict[str, Any]:
    return {
        "stream": number,
        "offset_start": stream.start,
        "offset_end": stream.end,
        "entries": stream.count,
        "version": stream.changed,
    }


def _moment_ms(text: str) -> int:
    """A moment without a zone is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(f"{text!r} is not a moment", "Write it as 2026-11-15T06:20:31Z") from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _short(raw: msgspec.Raw) -> str:
    text = bytes(raw).decode()
    return text if len(text) <= _VALUE_WIDTH else text[: _VALUE_WIDTH - 1] + "…"
