"""Multi-selection from rows to losses by loops over objects, without regard to speed."""

import numpy as np

from tests.reference import multiselect as literal
from tests.reference.statistics import judgment_estimates


class Independent:
    """Multi-selection by loops over objects, for judgments that vary in number."""

    def __init__(self, judgments, label, weight, ridge, data_units=False):
        self.data_units = data_units
        self.judgments = judgments
        self.label = label
        self.weight = weight
        self.ridge = ridge

    def estimates(self, mask):
        rows = np.flatnonzero(mask)
        judged = [[column[i] for i in rows] for column in self.judgments]
        return judgment_estimates(judged, self.label[rows], self.weight[rows])

    def penalty(self, mask):
        """The ridge, a multiple of the variance of a single judgment of each attribute."""
        e = self.estimates(mask)
        return self.ridge * (np.maximum(np.diag(e.external), 0) + e.v)

    def fit(self, mask, algorithm, budget):
        e, psd = self.problem(mask)
        variance = np.maximum(np.diag(e.external), 0)
        ridge = self.penalty(mask)
        objectives = {
            "full": lambda r: literal.full_objective(e.b, e.v, psd, r, ridge),
            "scoring": lambda r: literal.scoring_objective(e.b, e.v, variance, r, ridge),
        }
        d = len(e.b)
        r = np.bincount(literal.greedy(objectives[algorithm], d, budget), minlength=d)
        return r, *self.model(mask, r), objectives["full"](r)

    def problem(self, mask):
        e = self.estimates(mask)
        if self.data_units:
            return e, literal.make_psd_in_data_units(e.external)
        return e, literal.make_psd(e.external, e.v)

    def model(self, mask, r):
        """Weights and intercept of the projected model."""
        e, psd = self.problem(mask)
        s = np.flatnonzero(r)
        w = np.zeros(len(r))
        matrix = psd[np.ix_(s, s)] + np.diag(e.v[s] / r[s] + self.penalty(mask)[s])
        w[s] = np.linalg.solve(matrix, e.b[s])
        return w, self.label_mean(mask) - w @ e.means

    def projected_loss(self, mask, r):
        e, psd = self.problem(mask)
        return e.label_variance - literal.full_objective(e.b, e.v, psd, r, self.penalty(mask))

    def label_mean(self, mask):
        return np.average(self.label[mask], weights=self.weight[mask])

    def loss(self, mask, r, w, intercept):
        e = self.estimates(mask)
        noise = sum(e.v[a] / r[a] * w[a] ** 2 for a in np.flatnonzero(r))
        offset = self.label_mean(mask) - intercept - w @ e.means
        return e.label_variance - 2 * w @ e.b + w @ e.external @ w + noise + offset**2

    def complete(self, mask, r):
        """Objects that hold enough judgments, and their averages."""
        rows = [
            i
            for i in np.flatnonzero(mask & (self.weight > 0))
            if all(len(self.judgments[a][i]) >= r[a] for a in range(len(r)))
        ]
        s = np.flatnonzero(r)
        averages = [[np.mean(self.judgments[a][i][: r[a]]) for a in s] for i in rows]
        return np.array(rows), np.array(averages)

    def refit(self, mask, r):
        rows, X = self.complete(mask, r)
        w = self.weight[rows]
        s = np.flatnonzero(r)
        mean = np.average(X, axis=0, weights=w)
        y = self.label[rows]
        centred = X - mean
        gram = (centred.T * w) @ centred / w.sum() + np.diag(self.penalty(mask)[s])
        label = np.average(y, weights=w)
        found = np.zeros(len(r))
        found[s] = np.linalg.solve(gram, (centred.T * w) @ (y - label) / w.sum())
        return found, label - found[s] @ mean
