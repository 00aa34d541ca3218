"""The entry point of a job on a Ray cluster that has distfms installed.

``python jobs/entry.py SPEC [--set KEY=VALUE]…`` runs the spec on the cluster that the process
belongs to; its exit code is the job's. ``distfms submit`` sends the same code along by itself.
"""

from distfms.cli.entry import main

if __name__ == "__main__":
    main()
