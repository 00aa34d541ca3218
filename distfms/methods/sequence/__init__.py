"""Feature-group sequencing: in which order to compute groups of features that have costs.

Groups are put in order so that, interrupted at any budget, the linear prediction from the groups
done so far is near the best of that cost (Hu, Grubb, Bagnell, Hebert, "Efficient Feature Group
Sequencing for Anytime Linear Prediction"). Selection works on co-moments, never on rows.
"""

from distfms.methods.sequence.anytime import AnytimePredictor, AnytimeSession
from distfms.methods.sequence.greedy import sequence
from distfms.methods.sequence.options import resolve_costs, resolve_groups
from distfms.methods.sequence.problem import (
    FeatureGroups,
    GroupCosts,
    HeldOutCurve,
    PrefixModels,
    SequencePath,
    SequenceProblem,
    SharedCost,
    problem_from_comoments,
)
from distfms.methods.sequence.scores import oracle_curve, plateau, stopping_cost, timeliness

__all__ = [
    "AnytimePredictor",
    "AnytimeSession",
    "FeatureGroups",
    "GroupCosts",
    "HeldOutCurve",
    "PrefixModels",
    "SequencePath",
    "SequenceProblem",
    "SharedCost",
    "oracle_curve",
    "plateau",
    "problem_from_comoments",
    "resolve_costs",
    "resolve_groups",
    "sequence",
    "stopping_cost",
    "timeliness",
]
