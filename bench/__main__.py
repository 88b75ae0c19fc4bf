"""`python -m bench PART [--quick]`: run one part's benchmarks, print them and write bench/results/PART.json."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from bench.report import print_figures, write_figures

PARTS = ("kernel", "stream", "groups")


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--quick", action="store_true", help="smaller sizes: a look, not a measurement")
    arguments = parser.parse_args()
    figures = importlib.import_module(f"bench.{arguments.part}").run(quick=arguments.quick)
    print_figures(arguments.part, figures)
    write_figures(Path(__file__).parent / "results" / f"{arguments.part}.json", figures)


if __name__ == "__main__":
    main()
