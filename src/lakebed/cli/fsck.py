"""`lakebed fsck`: hold index, tables and stored files against each other, and restore tables that others have changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from lakebed.cli.options import Call, Command, common_options
from lakebed.cli.tables import print_rows
from lakebed.errors import EXIT_DONE, EXIT_FAILED

if TYPE_CHECKING:
    from lakebed.pipeline import Finding, TopicCheck
    from lakebed.streams import OpenRoot, Topic
    from lakebed.tables import TableSet


@click.command(
    "fsck",
    cls=Command,
    examples=[
        ("lakebed fsck", "Every topic: its index, its tables, its files"),
        ("lakebed fsck --topic orders --json", "One topic, for a program; exit code 1 when something is wrong"),
        ("lakebed fsck --repair", "Undo what others did to raw tables"),
    ],
)
@click.option("--topic", "names", multiple=True, metavar="NAME", help="Only this topic; may be repeated.")
@click.option("--repair", is_flag=True, help="Restore tables that do not hold what their stream holds.")
@common_options
def command(call: Call, names: tuple[str, ...], repair: bool) -> int:
    """Check that index, tables and stored files agree; leave with 1 when they do not."""
    return asyncio.run(_run(call, names, repair))


async def _run(call: Call, names: tuple[str, ...], repair: bool) -> int:
    from lakebed.pipeline import check_deleted, open_tables
    from lakebed.streams import opened_root

    async with opened_root(call.settings) as root:
        by_name = (await root.topics()).by_name
        topics = [await root.topic(name) for name in names] if names else list(by_name.values())
        tables = open_tables(root)
        try:
            checks = [await _check(root, tables, topic, repair) for topic in topics]
        finally:
            await tables.close()
        notes = [] if names else await check_deleted(root)
    _show(call, checks, [finding for check in checks for finding in check.findings] + notes)
    return EXIT_FAILED if any(check.wrong for check in checks) else EXIT_DONE


async def _check(root: OpenRoot, tables: TableSet, topic: Topic, repair: bool) -> TopicCheck:
    from lakebed.pipeline import Keeper, check_topic, holding

    found = await check_topic(root, tables, topic)
    if not repair or not found.repairable:
        return found
    keeper = Keeper(root, tables)
    async with holding(root, topic.name, topic.id, topic.domain, f"fsck-{root.clock.uuid7()}") as held:
        await keeper.restore(topic, held.token)
    return await check_topic(root, tables, topic)


def _show(call: Call, checks: list[TopicCheck], findings: list[Finding]) -> None:
    if call.output.as_json:
        wrong = any(check.wrong for check in checks)
        call.output.document({"wrong": wrong, "topics": checks, "findings": findings})
        return
    print_rows([_row(check) for check in checks])
    for finding in findings:
        level = "wrong" if finding.wrong else "note"
        call.output.text(f"{level}: {finding.topic}: {finding.problem}. {finding.remedy}")
    if not findings:
        call.output.text(f"{len(checks)} topics, nothing wrong")


def _row(check: TopicCheck) -> dict[str, object]:
    return {
        "topic": check.topic,
        "partitions": check.partitions,
        "wal objects": check.wal_objects,
        "settled files": check.settled_files,
        "iceberg": "-" if check.iceberg_files is None else check.iceberg_files,
        "delta": "-" if check.delta_files is None else check.delta_files,
        "orphans": check.orphans,
        "orphan bytes": check.orphan_bytes,
        "waiting": check.waiting,
        "job": check.job or "",
        "state": "wrong" if check.wrong else "ok",
    }
