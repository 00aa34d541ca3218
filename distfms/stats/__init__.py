"""Mergeable statistics: frozen values that sum up rows and merge with those of other rows.

Data are read once. Every statistic has ``from_block``, ``merge`` (which never mutates), derived
quantities, and ``to_arrays``/``from_arrays`` for storage without pickle.
"""

from distfms.stats.base import Bundle, Folded, Statistic, merge_tree
from distfms.stats.comoments import CoMoments, Moments
from distfms.stats.judgments import JudgmentEstimates, JudgmentStatistics
from distfms.stats.ragged import Ragged
from distfms.stats.raters import RaterStatistics
from distfms.stats.sample import RowSample

__all__ = [
    "Bundle",
    "CoMoments",
    "Folded",
    "JudgmentEstimates",
    "JudgmentStatistics",
    "Moments",
    "Ragged",
    "RaterStatistics",
    "RowSample",
    "Statistic",
    "merge_tree",
]
