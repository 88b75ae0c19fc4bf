"""`python -m bench PART [--quick] [--only NAME]`: run one part's benchmarks, print them and write bench/results/PART.json."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from bench.report import print_figures, write_figures

PARTS = ("kernel", "stream", "groups", "tables")


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--quick", action="store_true", help="smaller sizes: a look, not a measurement")
    parser.add_argument("--only", help="one of the part's own parts, where it has some; nothing is written then")
    arguments = parser.parse_args()
    module = importlib.import_module(f"bench.{arguments.part}")
    if arguments.only is not None:
        print_figures(f"{arguments.part}: {arguments.only}", module.run(quick=arguments.quick, only=arguments.only))
        return
    figures = module.run(quick=arguments.quick)
    print_figures(arguments.part, figures)
    write_figures(Path(__file__).parent / "results" / f"{arguments.part}.json", figures)


if __name__ == "__main__":
    main()
