"""What the manifest of a run says before its first step."""

from __future__ import annotations

import hashlib
from importlib import metadata
from itertools import groupby
from typing import Any

from distfms import __version__
from distfms.data.files.formats.base import FORMS
from distfms.methods.frame.contract import Inputs
from distfms.runs.events import Recorder
from distfms.runs.folder import (
    INPUTS,
    SCHEMA_VERSION,
    Manifest,
    RunFolder,
    encode_json,
    now,
    read_manifest,
    write_atomic,
)
from distfms.runs.prepare import Prepared

_PACKAGES = ("numpy", "scipy", "pyarrow", "dask", "scikit-learn")


def begin(run: RunFolder, prepared: Prepared, record: Recorder) -> bool:
    """Enter the attempt in the manifest; return whether it goes on with an earlier one."""
    spec = prepared.spec
    facts, inputs = facts_of(prepared)
    manifest = read_manifest(run.path)
    if manifest is None:
        write_atomic(run.path / "spec.yaml", spec.to_yaml().encode())
    elif manifest.distfms != __version__:
        text = f"Another version of distfms ({manifest.distfms}) began this run: it starts anew."
        record.event("anew", text, began=manifest.distfms)
        manifest = None
    kept = Manifest(notes=list(prepared.origin.notes)) if manifest is None else manifest
    stages = [entry.model_dump(exclude_defaults=True) for entry in kept.stages]
    claimed = run.claim(
        **facts, status="running", created=kept.created or now(), stages=stages, notes=kept.notes
    )
    if kept.inputs_sha256 != claimed.inputs_sha256 or not (run.path / INPUTS).exists():
        write_atomic(run.path / INPUTS, inputs)
    resumed = manifest is not None
    record.event(
        "begin",
        f"{'Resuming' if resumed else 'Writing'} {run.path}",
        name=spec.name,
        run=run.path.name,
        method=spec.method,
        engine=spec.engine.kind,
        resumed=resumed,
        attempt=claimed.attempt,
    )
    for text in () if resumed else kept.notes:
        record.note(text)
    return resumed


def facts_of(prepared: Prepared) -> tuple[dict[str, Any], bytes]:
    """Return what the manifest says of a run before it begins, and the content of `INPUTS`."""
    spec = prepared.spec
    described = describe_inputs(prepared.job.inputs)
    forms = prepared.job.inputs.train.forms
    content = {"inputs": described.pop("inputs"), "forms": forms and FORMS.dump_python(forms)}
    inputs = encode_json(content)
    facts = {
        "schema": SCHEMA_VERSION,
        "distfms": __version__,
        "spec_name": spec.name,
        "method": spec.method,
        "identity": prepared.identity,
        "seed": spec.seed,
        "muted": list(spec.output.mute),
        "engine": spec.engine.model_dump(mode="json"),
        "packages": {name: metadata.version(name) for name in _PACKAGES},
        "source": prepared.origin.source,
        **described,
        "inputs_sha256": hashlib.sha256(inputs).hexdigest(),
    }
    return facts, inputs


def describe_inputs(inputs: Inputs) -> dict[str, Any]:
    """Return what is said of the data: file by file in `INPUTS`, and the sums in the manifest."""
    parts = [part for dataset in inputs.datasets for part in dataset.partitions]
    footers = {file.path: file.footer for dataset in inputs.datasets for file in dataset.files}
    held_out = {file.path for file in inputs.test.files} if inputs.test else set()
    files = []
    for path, group in groupby(parts, key=lambda part: part.path):
        of_file = list(group)
        fingerprints = "\n".join(part.fingerprint for part in of_file)
        files.append(
            {
                "path": of_file[0].called,
                # They tell a folder that was moved or renamed from other data.
                "name": of_file[0].name,
                "key": of_file[0].key,
                "footer": footers.get(path, ""),
                "version": of_file[0].file_version,
                "held_out": path in held_out,
                "n_rows": sum(part.n_rows for part in of_file),
                "n_bytes": sum(part.n_bytes for part in of_file),
                "fingerprint": hashlib.sha256(fingerprints.encode()).hexdigest(),
            }
        )
    return {
        "inputs": files,
        "n_partitions": len(parts),
        "n_rows": sum(part.n_rows for part in parts),
        "n_bytes": sum(part.n_bytes for part in parts),
    }
