"""Mergeable statistics: frozen values that sum up rows and merge with those of other rows.

Data are read once. Every statistic has ``from_block``, ``merge`` (which never mutates), derived
quantities, and ``to_arrays``/``from_arrays`` for storage without pickle.
"""
