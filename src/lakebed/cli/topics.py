"""`lakebed topics`: create, look at, change and delete topics of a running broker."""

from __future__ import annotations

from typing import Any

import click

from lakebed.broker import Cluster, alter_topic, create_topic, delete_topic, topic_configs, widen_topic
from lakebed.cli.options import Command, json_option
from lakebed.cli.output import Output
from lakebed.cli.reaching import bootstrap_option, with_cluster
from lakebed.cli.tables import print_facts, print_rows
from lakebed.errors import Invalid

_SET_ON_TOPIC = 1


@click.group("topics")
def command() -> None:
    """Create, look at, change and delete topics."""


@command.command("list", cls=Command, examples=[("lakebed topics list --json", "All topics, for a program")])
@bootstrap_option
@json_option
@click.pass_obj
def list_(output: Output, bootstrap: str) -> None:
    """List topics."""

    async def work(cluster: Cluster) -> list[dict[str, Any]]:
        described = await cluster.describe(None)
        return [{"topic": topic.name, "partitions": len(topic.partitions)} for topic in described.topics]

    rows = sorted(with_cluster(bootstrap, work), key=lambda row: str(row["topic"]))
    if output.as_json:
        output.document(rows)
    else:
        print_rows(rows)


@command.command(
    "create",
    cls=Command,
    examples=[
        ("lakebed topics create orders --partitions 6", "Six partitions"),
        ("lakebed topics create logs --set retention.ms=86400000", "Keep a day"),
    ],
)
@click.argument("topic")
@click.option("--partitions", type=click.IntRange(1), help="How many.  [default: the broker's]")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A config of the topic; may be repeated.")
@click.option("--validate-only", is_flag=True, help="Only say whether it could be created.")
@bootstrap_option
@json_option
@click.pass_obj
def create(
    output: Output, topic: str, partitions: int | None, settings: tuple[str, ...], validate_only: bool, bootstrap: str
) -> None:
    """Create a topic."""
    configs = dict(_pair(text) for text in settings)
    made = with_cluster(
        bootstrap, lambda cluster: create_topic(cluster, topic, partitions or -1, configs, validate_only)
    )
    facts = {"topic": topic, "partitions": made.num_partitions, "created": not validate_only}
    if output.as_json:
        output.document(facts)
    else:
        print_facts(facts)


@command.command("describe", cls=Command, examples=[("lakebed topics describe orders", "Partitions and configs")])
@click.argument("topic")
@bootstrap_option
@json_option
@click.pass_obj
def describe(output: Output, topic: str, bootstrap: str) -> None:
    """Show a topic's partitions and configs."""

    async def work(cluster: Cluster) -> dict[str, Any]:
        found = await cluster.topic(topic)
        configs = await topic_configs(cluster, topic)
        partitions = sorted(found.partitions, key=lambda each: each.partition_index)
        return {
            "topic": topic,
            "id": found.topic_id.hex(),
            "partitions": [{"partition": each.partition_index, "leader": each.leader_id} for each in partitions],
            "configs": {config.name: config.value for config in configs},
            "set": sorted(config.name for config in configs if config.config_source == _SET_ON_TOPIC),
        }

    facts = with_cluster(bootstrap, work)
    if output.as_json:
        output.document(facts)
        return
    print_facts({"topic": facts["topic"], "id": facts["id"]})
    print_rows(facts["partitions"])
    changed = set(facts["set"])
    print_rows([{"config": key, "value": value, "set": key in changed} for key, value in facts["configs"].items()])


@command.command("delete", cls=Command, examples=[("lakebed topics delete orders", "Gone, with its records")])
@click.argument("topic")
@bootstrap_option
@json_option
@click.pass_obj
def delete(output: Output, topic: str, bootstrap: str) -> None:
    """Delete a topic and its records."""
    with_cluster(bootstrap, lambda cluster: delete_topic(cluster, topic))
    if output.as_json:
        output.document({"topic": topic, "deleted": True})


@command.command(
    "alter",
    cls=Command,
    examples=[
        ("lakebed topics alter orders --partitions 12", "More partitions"),
        ("lakebed topics alter orders --set retention.ms=3600000 --unset max.message.bytes", "Change configs"),
    ],
)
@click.argument("topic")
@click.option("--partitions", type=click.IntRange(1), help="The new number of partitions.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a config; may be repeated.")
@click.option("--unset", multiple=True, metavar="KEY", help="Put a config back to its default; may be repeated.")
@bootstrap_option
@json_option
@click.pass_obj
def alter(
    output: Output,
    topic: str,
    partitions: int | None,
    settings: tuple[str, ...],
    unset: tuple[str, ...],
    bootstrap: str,
) -> None:
    """Change a topic's configs, or give it more partitions."""
    changes: dict[str, str | None] = dict(_pair(text) for text in settings)
    changes |= dict.fromkeys(unset)
    if not changes and partitions is None:
        raise Invalid("nothing to change", "Give --partitions, --set or --unset")

    async def work(cluster: Cluster) -> None:
        if changes:
            await alter_topic(cluster, topic, changes)
        if partitions is not None:
            await widen_topic(cluster, topic, partitions)

    with_cluster(bootstrap, work)
    if output.as_json:
        output.document({"topic": topic, "altered": True})


def _pair(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found or not key:
        raise Invalid(f"--set {text!r} is not KEY=VALUE", "Write such as --set retention.ms=86400000")
    return key, value
