"""Curves from decision values to probabilities."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax

from domainwise.held_out.calibration.curves import BIAS_PENALTY_ROWS, PENALTY_ROWS, fit_curve


def example(n_classes, n=120, seed=0):
    rng = np.random.default_rng(seed)
    codes = rng.integers(n_classes, size=n)
    values = rng.standard_normal((n, n_classes)) * 3
    values[np.arange(n), codes] += 4
    return values, codes, rng.random(n)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_a_curve_maximizes_the_penalized_likelihood(n_classes):
    values, codes, weights = example(n_classes)
    curve, loss = fit_curve(values, codes, weights)
    w = weights / weights.sum()
    centred = values - values.mean(axis=1, keepdims=True)
    scale = np.sqrt(np.mean(centred**2))

    def objective(p):
        logs = log_softmax(p[0] * centred / scale + p[1:], axis=1)
        penalty = PENALTY_ROWS * (p[0] - 1) ** 2 + BIAS_PENALTY_ROWS * np.sum(p[1:] ** 2)
        return -w @ logs[np.arange(len(codes)), codes] + penalty / len(codes) / 2

    best = minimize(objective, np.r_[1.0, np.zeros(n_classes)], tol=1e-12).x
    np.testing.assert_allclose(curve.slope * scale, best[0], rtol=1e-3)
    np.testing.assert_allclose(curve.bias, best[1:] - best[1:].mean(), atol=1e-3)
    p = curve.probabilities(values)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    assert loss == pytest.approx(-w @ np.log(p[np.arange(len(codes)), codes]))


def test_permuting_classes_permutes_probabilities():
    values, codes, weights = example(4)
    order = np.array([2, 0, 3, 1])
    inverse = np.argsort(order)
    expected = fit_curve(values, codes, weights)[0].probabilities(values)
    turned = fit_curve(values[:, order], inverse[codes], weights)[0].probabilities(values[:, order])
    np.testing.assert_allclose(turned, expected[:, order], atol=1e-8)


def test_the_mean_probability_of_a_rare_class_is_its_frequency():
    rng = np.random.default_rng(0)
    codes = (np.arange(600) < 30).astype(int)
    values = 1.5 * codes + rng.standard_normal(600)  # as of a model with balanced classes
    columns = np.column_stack([-values, values])
    curve, _ = fit_curve(columns, codes, np.ones(600))
    assert curve.probabilities(columns)[:, 1].mean() == pytest.approx(0.05, rel=0.01)


@pytest.mark.parametrize("sign", [0.0, -1.0])
def test_uninformative_or_reversed_values_give_the_class_shares(sign):
    values, codes, _ = example(3)
    curve, loss = fit_curve(sign * values, codes, np.ones(len(codes)))
    shares = np.bincount(codes) / len(codes)
    np.testing.assert_allclose(curve.probabilities(values[:2])[0], shares, atol=0.02)
    assert loss == pytest.approx(-shares @ np.log(shares), abs=1e-3)


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_the_scale_of_values_does_not_matter(scale):
    values, codes, weights = example(3)
    expected = fit_curve(values, codes, weights)[0].probabilities(values)
    scaled = fit_curve(scale * values, codes, weights)[0].probabilities(scale * values)
    np.testing.assert_allclose(scaled, expected, atol=1e-8)


def test_separated_classes_have_a_finite_curve():
    values = np.array([[5.0, -5.0], [-5.0, 5.0]] * 10)
    curve, loss = fit_curve(values, np.array([0, 1] * 10), np.ones(20))
    assert np.isfinite(curve.slope)
    assert loss < 0.1
