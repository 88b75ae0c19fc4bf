"""`lakebed groups`: look at consumer groups and their lag, move their offsets, delete them."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from lakebed.broker import (
    Cluster,
    DescribedGroup,
    Target,
    all_groups,
    commit_offsets,
    delete_group,
    describe_group,
    plan_reset,
)
from lakebed.cli.options import Command, json_option
from lakebed.cli.output import Output
from lakebed.cli.reaching import bootstrap_option, with_cluster
from lakebed.cli.tables import print_facts, print_rows
from lakebed.clock import SystemClock, unix_ms
from lakebed.errors import Invalid

_WATCH_S = 1.0


@click.group("groups")
def command() -> None:
    """Look at consumer groups and their lag, move their offsets, delete them."""


@command.command("list", cls=Command, examples=[("lakebed groups list --json", "All groups, for a program")])
@bootstrap_option
@json_option
@click.pass_obj
def list_(output: Output, bootstrap: str) -> None:
    """List groups."""
    found = with_cluster(bootstrap, all_groups)
    rows = [{"group": each.group_id, "kind": each.group_type.lower(), "state": each.group_state} for each in found]
    if output.as_json:
        output.document(rows)
    else:
        print_rows(rows)


@command.command(
    "describe",
    cls=Command,
    examples=[
        ("lakebed groups describe billing", "Members, offsets and lag"),
        ("lakebed groups describe billing --watch", "Again and again, until Ctrl-C"),
    ],
)
@click.argument("group")
@click.option("--watch", is_flag=True, help="Look again every second.")
@bootstrap_option
@json_option
@click.pass_obj
def describe(output: Output, group: str, watch: bool, bootstrap: str) -> None:
    """Show a group's members, offsets and lag."""

    async def work(cluster: Cluster) -> None:
        while True:
            facts = _facts(await describe_group(cluster, group))
            _show(output, facts, watch)
            if not watch:
                return
            await SystemClock().sleep(_WATCH_S)

    try:
        with_cluster(bootstrap, work)
    except (KeyboardInterrupt, asyncio.CancelledError):
        return


@command.command(
    "reset-offsets",
    cls=Command,
    examples=[
        ("lakebed groups reset-offsets billing --to-earliest", "What would change"),
        (
            "lakebed groups reset-offsets billing --topic orders:0,2 --to-latest --execute",
            "Skip what is in two partitions",
        ),
        ("lakebed groups reset-offsets billing --shift-by -100 --execute", "Read the last 100 of each partition again"),
        ("lakebed groups reset-offsets billing --to-datetime 2026-01-31T12:00:00.000", "What came since then"),
    ],
)
@click.argument("group")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:PARTITION,...]",
    help="Only this topic; may be repeated.  [default: all it has read]",
)
@click.option("--to-earliest", is_flag=True, help="Go to the first record there is.")
@click.option("--to-latest", is_flag=True, help="Go behind the last record.")
@click.option("--to-current", is_flag=True, help="Stay; where nothing is committed, go behind the last record.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="N", help="Go to this offset.")
@click.option("--to-datetime", metavar="WHEN", help="Go to the first record since then; UTC unless it says otherwise.")
@click.option("--shift-by", type=int, metavar="N", help="Go forward by N records, or back by -N.")
@click.option("--dry-run", is_flag=True, help="Only show the new offsets. This is the default.")
@click.option("--execute", is_flag=True, help="Set the new offsets.")
@bootstrap_option
@json_option
@click.pass_obj
def reset_offsets(
    output: Output, /, group: str, topics: tuple[str, ...], bootstrap: str, dry_run: bool, execute: bool, **places: Any
) -> None:
    """Show where the offsets of a group would be moved; with --execute, move them. The group must have no members."""
    if dry_run and execute:
        raise Invalid("--dry-run and --execute exclude each other", "Give one of them")
    target = _target(places)

    async def work(cluster: Cluster) -> dict[tuple[str, int], int]:
        plan = await plan_reset(cluster, group, topics, target)
        if execute:
            await commit_offsets(cluster, group, plan)
        return plan

    plan = with_cluster(bootstrap, work)
    rows = [{"topic": topic, "partition": partition, "offset": offset} for (topic, partition), offset in plan.items()]
    if output.as_json:
        output.document({"group": group, "done": execute, "offsets": rows})
        return
    print_rows(rows)
    if not execute and not dry_run:
        click.echo("Nothing was changed. Add --execute to set these offsets.", err=True)


@command.command("delete", cls=Command, examples=[("lakebed groups delete billing", "Gone, with its offsets")])
@click.argument("group")
@bootstrap_option
@json_option
@click.pass_obj
def delete(output: Output, group: str, bootstrap: str) -> None:
    """Delete a group that has no members, and its offsets."""
    with_cluster(bootstrap, lambda cluster: delete_group(cluster, group))
    if output.as_json:
        output.document({"group": group, "deleted": True})


def _target(places: dict[str, Any]) -> Target:
    """What was asked for; each option is a word for one way to choose an offset."""
    given = {name: value for name, value in places.items() if value is not None and value is not False}
    if len(given) != 1:
        words = ", ".join(f"--{name.replace('_', '-')}" for name in places)
        raise Invalid("where to go is not clear", f"Give one of {words}")
    ((name, value),) = given.items()
    if name == "to_datetime":
        return _moment_ms(value)
    targets: dict[str, Target] = {
        "to_earliest": lambda start, _, at: start,
        "to_latest": lambda _, end, at: end,
        "to_current": lambda _, end, at: end if at is None else at,
        "to_offset": lambda *_: int(value),
        "shift_by": lambda start, _, at: (start if at is None else at) + int(value),
    }
    return targets[name]


def _moment_ms(text: str) -> int:
    try:
        return unix_ms(text)
    except ValueError:
        raise Invalid(
            f"--to-datetime {text!r} is no moment", "Write it as 2026-01-31T12:00:00.000, with +01:00 if it is not UTC"
        ) from None


def _facts(found: DescribedGroup) -> dict[str, Any]:
    return {
        "group": found.group,
        "kind": found.kind,
        "state": found.state,
        "coordinator": found.coordinator,
        "lag": sum(each.lag or 0 for each in found.progress),
        "members": [each._asdict() for each in found.members],
        "partitions": [each._asdict() for each in found.progress],
    }


def _show(output: Output, facts: dict[str, Any], watch: bool) -> None:
    if output.as_json:
        (output.line if watch else output.document)(facts)
        return
    if watch:
        click.clear()
    print_facts({key: value for key, value in facts.items() if key not in ("members", "partitions")})
    print_rows(
        [
            {"member": each["member_id"], "client": each["client_id"], "host": each["host"]}
            | {"partitions": sum(map(len, each["partitions"].values()))}
            for each in facts["members"]
        ]
    )
    print_rows([{key: "-" if value is None else value for key, value in row.items()} for row in facts["partitions"]])
