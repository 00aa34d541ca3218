"""Feature multi-selection: which attributes to have judged, and how many times each.

Given a few noisy judgments of every attribute of labelled objects, the greedy search decides how
a budget of judgments per object is best spent so that a linear model on their averages has the
least squared error (Sabato and Kalai, ICML 2013). It works on estimates of the first two moments
only, never on rows.
"""
