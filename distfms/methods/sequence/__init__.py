"""Feature-group sequencing: in which order to compute groups of features that have costs.

Groups are put in order so that, interrupted at any budget, the linear prediction from the groups
done so far is near the best of that cost (Hu, Grubb, Bagnell, Hebert, "Efficient Feature Group
Sequencing for Anytime Linear Prediction"). Selection works on co-moments, never on rows.
"""
