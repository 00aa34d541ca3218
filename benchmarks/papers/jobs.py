"""Jobs with `preset: paper`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from distfms.runs.driver import run_job
from distfms.runs.job_spec import build_spec


@dataclass(frozen=True)
class Jobs:
    """Runs jobs of a method in a scratch folder."""

    method: str
    place: Path

    def run(self, data: Mapping[str, Any], seed: int = 0, **options: Any) -> tuple[Any, Any]:
        """Return the metrics and the selection."""
        content = {
            "name": "paper",
            "method": self.method,
            "preset": "paper",
            "seed": seed,
            "data": dict(data),
            self.method: options,
            "engine": {"actors": "never"},  # whose start takes longer than their work here
            "output": str(self.place),
        }
        folder = run_job(build_spec(content)).folder
        names = ("metrics.json", "selection.json")
        metrics, selection = (json.loads((folder / name).read_text()) for name in names)
        return metrics, selection

    def write(self, name: str, columns: Mapping[str, Any]) -> str:
        """Write columns, and return where."""
        path = self.place / f"{name}.parquet"
        pq.write_table(pa.table(dict(columns)), path)
        return str(path)
