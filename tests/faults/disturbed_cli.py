"""The command line of distfms under a disturbance: PLAN (JSON), then the usual arguments."""

from __future__ import annotations

import sys
from pathlib import Path

from distfms.cli import main
from tests.faults.cases import small_blocks
from tests.faults.disturbance import Plan, disturbed

if __name__ == "__main__":
    specs = [Path(word) for word in sys.argv[2:] if word.endswith(".yaml")]
    kind = "blocks" if any("psd: none" in spec.read_text() for spec in specs) else ""
    with small_blocks(kind), disturbed(Plan.from_json(sys.argv[1])):
        main(sys.argv[2:])
