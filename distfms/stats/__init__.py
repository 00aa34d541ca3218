"""Mergeable statistics: frozen values that sum up rows and merge with those of other rows.

Data are read once. Every statistic has ``from_block``, ``merge`` (which never mutates) and derived
quantities; :mod:`distfms.stats.codec` keeps them without pickle.
"""
