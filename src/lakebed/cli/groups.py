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
from lakebed.clock import SystemClock
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
        ("lakebed groups reset-offsets billing --to earliest --dry-run", "What would change"),
        ("lakebed groups reset-offsets billing --topic orders --to latest", "Skip what is there"),
        ("lakebed groups reset-offsets billing --shift -100", "Read the last 100 of each partition again"),
    ],
)
@click.argument("group")
@click.option("--topic", "topics", multiple=True, help="Only this topic; may be repeated.  [default: all it has read]")
@click.option("--to", "place", metavar="earliest|latest|OFFSET", help="Where to go.")
@click.option("--shift", type=int, metavar="N", help="Go forward by N records, or back by -N.")
@click.option("--dry-run", is_flag=True, help="Only show the new offsets.")
@bootstrap_option
@json_option
@click.pass_obj
def reset_offsets(
    output: Output,
    group: str,
    topics: tuple[str, ...],
    place: str | None,
    shift: int | None,
    dry_run: bool,
    bootstrap: str,
) -> None:
    """Move the offsets of a group that has no members."""
    target = _target(place, shift)

    async def work(cluster: Cluster) -> dict[tuple[str, int], int]:
        plan = await plan_reset(cluster, group, topics, target)
        if not dry_run:
            await commit_offsets(cluster, group, plan)
        return plan

    plan = with_cluster(bootstrap, work)
    rows = [{"topic": topic, "partition": partition, "offset": offset} for (topic, partition), offset in plan.items()]
    if output.as_json:
        output.document({"group": group, "done": not dry_run, "offsets": rows})
    else:
        print_rows(rows)


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


def _target(place: str | None, shift: int | None) -> Target:
    if (place is None) == (shift is None):
        raise Invalid("where to go is not clear", "Give either --to or --shift")
    if shift is not None:
        return lambda start, _, at: (start if at is None else at) + shift
    if place == "earliest":
        return lambda start, _, at: start
    if place == "latest":
        return lambda _, end, at: end
    if place is not None and place.isascii() and place.isdigit():
        offset = int(place)
        return lambda *_: offset
    raise Invalid(f"--to {place!r} is no offset", "Write earliest, latest or a number")


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
