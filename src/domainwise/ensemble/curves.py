"""Decision values of rows that a model has not learnt from, as probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax, softmax

from domainwise.arrays import Array

#: Newton's method has converged long before.
MAX_STEPS = 50
TOLERANCE = 1e-8
#: Weight of the penalty on the parameters, where all rows together weigh 1: in rows of average
#: weight.
PENALTY_ROWS = 1.0


@dataclass(frozen=True)
class Curve:
    """Probabilities ``softmax(slope * values + bias)``: a logistic curve, for two classes."""

    slope: float  #: not negative: values that say the opposite of the truth are not turned round
    bias: Array  #: of each class

    def probabilities(self, values: Array) -> Array:
        """Probabilities of shape (n, n_classes)."""
        return np.asarray(softmax(self.slope * values + self.bias, axis=1))


def fit_curve(values: Array, codes: Array, weights: Array) -> tuple[Curve, float]:
    """Fit a curve by maximum likelihood, with a little shrinkage, and return the log loss.

    ``values``, of shape (n, n_classes), are log-probabilities or decision values. The loss is the
    weighted mean of the negative logarithm of the probability of the class.
    """
    values = values - values.mean(axis=1, keepdims=True)
    weights = weights / weights.sum()
    n, n_classes = values.shape
    spread = float(np.sqrt(np.mean(values**2)))
    scale = spread or 1.0
    penalty = PENALTY_ROWS / n
    design = values / scale
    hits = np.zeros((n, n_classes))
    hits[np.arange(n), codes] = 1.0
    # The first parameter is the slope, the others are the biases.
    start = np.concatenate([[1.0], np.zeros(n_classes)])
    parameters, objective = start, np.inf
    step = np.zeros(n_classes + 1)
    for _ in range(MAX_STEPS):
        shrink = 1.0
        while True:
            trial = parameters - shrink * step
            log_p = log_softmax(trial[0] * design + trial[1:], axis=1)
            value = -weights @ log_p[np.arange(n), codes]
            value += 0.5 * penalty * np.sum((trial - start) ** 2)
            if value <= objective + TOLERANCE or shrink < 1e-4:
                break
            shrink /= 2
        done = objective - value < TOLERANCE
        parameters, objective = trial, value
        if done:
            break
        step = _newton_step(design, np.exp(log_p), hits, weights, parameters - start, penalty)
    slope = max(float(parameters[0]), 0.0) if spread else 0.0
    bias = parameters[1:] - parameters[1:].mean()
    if not slope:
        bias = np.log(np.maximum(weights @ hits, 1e-6))
    curve = Curve(slope / scale, bias)
    chosen = np.maximum(curve.probabilities(values)[np.arange(n), codes], 1e-300)
    return curve, -float(weights @ np.log(chosen))


def _newton_step(
    design: Array, p: Array, hits: Array, weights: Array, distance: Array, penalty: float
) -> Array:
    """Solve for the change of slope and biases."""
    weighted = weights[:, None] * p
    excess = weights[:, None] * (p - hits)
    gradient = np.concatenate([[np.sum(excess * design)], excess.sum(axis=0)])
    mean = np.sum(p * design, axis=1)
    hessian = np.empty((len(distance), len(distance)))
    hessian[0, 0] = np.sum(weighted * design**2) - weights @ mean**2
    hessian[0, 1:] = hessian[1:, 0] = (weighted * (design - mean[:, None])).sum(axis=0)
    hessian[1:, 1:] = np.diag(weighted.sum(axis=0)) - p.T @ weighted
    hessian[np.diag_indices(len(hessian))] += penalty
    return np.asarray(np.linalg.solve(hessian, gradient + penalty * distance))
