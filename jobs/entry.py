"""The entry point of a job on a Ray cluster that has distfms installed.

``python jobs/entry.py [run | retrain] SPEC [--set KEY=VALUE]…`` runs the spec on the cluster that
the process belongs to; its exit code is the job's.
"""

import sys

from distfms.cli import main

if __name__ == "__main__":
    words = sys.argv[1:]
    verb = words.pop(0) if words[:1] in (["run"], ["retrain"]) else "run"
    main([verb, "--engine", "ray", "--address", "auto", *words])
