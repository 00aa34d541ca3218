"""The command line of distfms under a disturbance: PLAN (JSON), then the usual arguments."""

from __future__ import annotations

import sys

from distfms.cli import main
from tests.faults.cases import small_blocks
from tests.faults.disturbance import Plan, disturbed

if __name__ == "__main__":
    with small_blocks(), disturbed(Plan.from_json(sys.argv[1])):
        main(sys.argv[2:])
