"""Supervised learning with similarity functions: a linear model on similarities to landmarks.

References
----------
Kar, Jain, "Supervised Learning with Similarity Functions", NIPS 2012.
"""
