"""`lakebed demo`: the main job that exists, end to end, in a scratch folder.

Every step checks what it shows: a demo that ends well has proved something.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from lakebed.cli.demo_kernel import KernelAct
from lakebed.cli.demo_stage import Stage
from lakebed.cli.demo_stream import StreamAct
from lakebed.cli.demo_tables import TablesAct
from lakebed.cli.options import Command, json_option
from lakebed.cli.output import Output
from lakebed.clock import SystemClock
from lakebed.errors import Invalid

_KERNEL, _STREAM, _TABLES, _ALL = "kernel", "stream", "tables", "all"


@click.command(
    "demo",
    cls=Command,
    examples=[
        ("lakebed demo", "Watch, then forget"),
        ("lakebed demo --part stream", "Only the broker and its client"),
        ("lakebed demo --keep ./demo-root", "Keep the folders, to look inside with 'lakebed log'"),
    ],
)
@click.option("--part", type=click.Choice([_KERNEL, _STREAM, _TABLES, _ALL]), default=_ALL, show_default=True)
@click.option("--keep", metavar="DIR", type=click.Path(path_type=Path), help="Use this new folder and leave it there.")
@json_option
@click.pass_obj
def command(output: Output, part: str, keep: Path | None) -> None:
    """See a commit log, a broker and its tables at work, in a scratch folder."""
    if keep is not None and keep.exists() and any(keep.iterdir()):
        raise Invalid(f"{keep} is not empty", "Name a folder that does not exist yet")
    stage, clock = Stage(output), SystemClock()
    with TemporaryDirectory(prefix="lakebed-demo-") as scratch:
        folder = (keep or Path(scratch)).absolute()
        if part in (_KERNEL, _ALL):
            asyncio.run(KernelAct(folder / _KERNEL, stage, clock).run())
        if part in (_STREAM, _ALL):
            StreamAct(folder / _STREAM, stage, clock).run()
        if part in (_TABLES, _ALL):
            TablesAct(folder / _TABLES, stage, clock).run()
    if output.as_json:
        output.document(stage.facts)
        return
    output.text("\nEverything held.")
    if keep is not None:
        where = keep / _KERNEL if part == _KERNEL else keep / (_TABLES if part == _TABLES else _STREAM) / "root"
        output.text(f"Look inside:  lakebed log history --root {where}")
