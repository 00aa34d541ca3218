"""Runs: from a job spec to a run folder, resumable at every step."""
