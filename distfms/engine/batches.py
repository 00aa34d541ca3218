"""How many units travel together: runs that are whole subtrees of the merge tree."""

from __future__ import annotations

#: Units of one task at most. More would hold more values and lose more with a worker, and what a
#: task costs is by then a small share of what it does.
MOST_UNITS = 32

#: Tasks for each worker, at least: workers wait for one another at the end for half a task each.
TASKS_PER_WORKER = 8

#: Workers that one driver keeps busy with single units. It spends about a millisecond on each of
#: the two tasks of a unit, which takes a worker some 60 ms.
WORKERS_PER_DRIVER = 32


def batch_size(
    n_units: int,
    workers: int,
    *,
    coarse: int = 1,
    unit_bytes: int = 0,
    value_bytes: int = 0,
) -> int:
    """Give the number of units that one task does.

    Parameters
    ----------
    n_units : int
        At least 1.
    workers : int
        Tasks at the same time, at least 1.
    coarse : int
        How many times as many tasks to leave for each worker: for executors that start a task at
        little cost, which batches help less.
    unit_bytes, value_bytes : int
        What reading one unit and holding one value takes. The log2 values that a batch holds
        together take no more than a unit: where values are larger, so is the work on a unit,
        and batches gain nothing. 0 for a value of no size.

    Returns
    -------
    int
        A power of two, at most MOST_UNITS: a batch that begins at a multiple of it is a subtree.
        With less than 16 units for each of less than 64 workers it is 1, so that what is lost with
        a worker, shown and waited for is one unit. More workers would wait for the driver rather
        than for one another; they get larger batches, as long as there is one for each.

    Notes
    -----
    All batches of a pass have one size. With large ones first and small ones last, workers would
    wait less for one another; but Dask begins with the small ones, from which the way to the root
    is longer.
    """
    most = MOST_UNITS
    if value_bytes:
        most = min(most, 1 << min(unit_bytes // value_bytes, most))
    balanced = n_units // (workers * coarse * TASKS_PER_WORKER)
    served = min(workers // (WORKERS_PER_DRIVER * coarse), n_units // workers)
    return min(most, _power_of_two(max(balanced, served)))


def _power_of_two(number: int) -> int:
    """Give the largest power of two that is not above the number, at least 1."""
    return 1 << max(0, number.bit_length() - 1)
