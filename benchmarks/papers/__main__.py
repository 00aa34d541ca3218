"""``python -m benchmarks.papers [PAPER ...] [--folder FOLDER]`` writes the tables of the README.

FOLDER has the public data; without it, DISTFMS_REALDATA names it. Each paper's section of
``benchmarks/papers/README.md`` is replaced, and its rows go to ``benchmarks/results``.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from benchmarks.papers import few_attributes, multi_selection, sequences, similarities
from benchmarks.papers.tables import commit, write

PAPERS = {
    "multi-selection": multi_selection,
    "sequences": sequences,
    "similarities": similarities,
    "few-attributes": few_attributes,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.papers", description="Write the tables of the four papers."
    )
    parser.add_argument("papers", nargs="*", metavar="PAPER", help=", ".join(PAPERS))
    parser.add_argument("--folder", type=Path, default=os.environ.get("DISTFMS_REALDATA"))
    parser.add_argument("--repeats", type=int, help="splits or repeats (default: the paper's)")
    args = parser.parse_args()
    if args.folder is None:
        parser.error("name the folder of public data with --folder, or set DISTFMS_REALDATA")
    if unknown := [name for name in args.papers if name not in PAPERS]:
        parser.error(f"unknown paper {unknown[0]}; choose from {', '.join(PAPERS)}")
    version = commit()  # before what is written changes it
    for name in args.papers or PAPERS:
        paper = PAPERS[name]
        repeats = args.repeats or paper.REPEATS
        tables = []
        for table in paper.tables(args.folder, repeats):
            print(f"\n{table.markdown()}", flush=True)
            tables.append(table)
            write(name, paper.TITLE, tables, repeats, version)


if __name__ == "__main__":
    main()
