"""Corrections equal independent computations, also in limiting cases."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from domainwise.estimators.adaptation.corrections import (
    ClassPrior,
    LinePrior,
    SiteLabels,
    SourceOutputs,
    Spread,
    smooth_logs,
)

NO_SPREAD = Spread(0.0, 1.0)  # all labels have full weight


def outputs_with_levels(levels, slopes, n=200, noise=0.5, seed=0):
    """Held-out outputs of domains that differ by a level and a slope around an output of 0."""
    rng = np.random.default_rng(seed)
    domain = np.repeat(np.arange(len(levels)), n)
    outputs = rng.normal(size=len(domain))
    y = outputs + np.asarray(levels)[domain] + np.asarray(slopes)[domain] * outputs
    y += noise * rng.normal(size=len(domain))
    return SourceOutputs(y, domain, outputs[:, None])


def class_outputs(n_domains=6, n=80, n_classes=3, bias=1.0, seed=0):
    """Probabilities with a bias for each class and domain."""
    rng = np.random.default_rng(seed)
    domain = np.repeat(np.arange(n_domains), n)
    logs = rng.normal(size=(len(domain), n_classes))
    shift = bias * rng.normal(size=(n_domains, n_classes))
    truth = softmax(logs + shift[domain], axis=1)
    y = np.array([rng.choice(n_classes, p=p) for p in truth])
    return SourceOutputs(y, domain, softmax(logs, axis=1))


def test_prior_variances_are_those_of_the_levels_and_slopes_of_domains():
    rng = np.random.default_rng(1)
    levels, slopes = 2.0 * rng.normal(size=60), 0.3 * rng.normal(size=60)
    prior = LinePrior.learn(outputs_with_levels(levels, slopes))
    assert prior.level == pytest.approx(np.mean(levels**2), rel=0.05)
    assert prior.slope == pytest.approx(np.mean(slopes**2), rel=0.1)
    assert prior.noise == pytest.approx(0.25 + np.mean(slopes**2), rel=0.1)


def test_without_differences_between_domains_predictions_are_not_corrected():
    prior = LinePrior.learn(outputs_with_levels(np.zeros(30), np.zeros(30)))
    labels = SiteLabels.from_rows(np.zeros((5, 1)), np.full(5, 1.0))
    assert abs(labels.correction(prior)[0]) < 0.05


def test_the_level_is_the_shrunken_mean_of_the_residuals():
    prior = LinePrior(0.0, level=4.0, slope=0.0, noise=2.0, spread=NO_SPREAD)
    outputs, y = np.arange(5.0)[:, None], 2.0 * np.arange(5.0) + 1.0
    level, slope = prior.corrections(outputs[None], y[None])[0]
    assert level == pytest.approx(5 * 4.0 / (5 * 4.0 + 2.0) * 3.0)
    assert slope == 0.0


def test_level_and_slope_are_the_maximum_of_the_posterior():
    rng = np.random.default_rng(0)
    prior = LinePrior(0.7, level=1.5, slope=0.2, noise=0.8, spread=NO_SPREAD)
    outputs, y = rng.normal(size=(12, 1)), rng.normal(size=12)

    def negative_log_posterior(theta):
        level, slope = theta
        residuals = y - outputs[:, 0] - level - slope * (outputs[:, 0] - 0.7)
        return residuals @ residuals / 1.6 + level**2 / 3.0 + slope**2 / 0.4

    best = minimize(negative_log_posterior, np.zeros(2), tol=1e-14).x
    assert prior.corrections(outputs[None], y[None])[0] == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize(("balanced", "relative"), [(False,) * 2, (True, False), (False, True)])
def test_biases_are_the_maximum_of_the_posterior(balanced, relative):
    rng = np.random.default_rng(0)
    shares = np.array([0.5, 0.3, 0.2])
    prior = ClassPrior(0.6, shares, balanced, NO_SPREAD, relative)
    probabilities, y = rng.dirichlet(np.ones(3), size=9), rng.integers(3, size=9)
    logs = smooth_logs(probabilities)
    if balanced:
        counts = np.bincount(y, minlength=3) + 10 * shares
        logs = logs + np.log(counts / counts.sum())
    if relative:  # the probabilities have the class shares of the sources, not of the site
        counts = np.bincount(y, minlength=3) + 10 * shares
        logs = logs + np.log(counts / counts.sum() / shares)

    def negative_log_posterior(bias):
        return -log_softmax(logs + bias, axis=1)[np.arange(9), y].sum() + bias @ bias / 0.72

    best = minimize(negative_log_posterior, np.zeros(3), tol=1e-14).x
    biases = prior.corrections(probabilities[None], y[None])[0]
    assert biases == pytest.approx(best, abs=1e-5)
    assert biases.sum() == pytest.approx(0.0, abs=1e-12)


def test_the_scale_grows_with_differences_between_domains():
    small = ClassPrior.learn(class_outputs(bias=0.0)).scale
    large = ClassPrior.learn(class_outputs(bias=1.5)).scale
    assert small <= 0.25 < large


def test_without_labels_outputs_are_identical():
    line, classes = LinePrior.learn(outputs_with_levels([0, 1], [0, 0])), class_outputs()
    prior = ClassPrior.learn(classes)
    none = SiteLabels.from_rows(np.zeros((0, 1)), np.zeros(0))
    outputs = np.random.default_rng(0).normal(size=(20, 1))
    assert (line.apply(outputs, none.correction(line)) == outputs).all()
    none = SiteLabels.from_rows(np.zeros((0, 3)), np.zeros(0, dtype=int))
    assert (prior.apply(classes.outputs, none.correction(prior)) == classes.outputs).all()


def test_labels_of_one_class_give_bounded_biases():
    prior = ClassPrior(2.0, np.array([0.5, 0.5]), False, NO_SPREAD)
    outputs = np.full((10, 2), 0.5)
    labels = SiteLabels.from_rows(outputs, np.ones(10, dtype=int))
    p = prior.apply(np.array([[0.5, 0.5]]), labels.correction(prior))[0, 1]
    assert 0.8 < p < 0.999


def test_many_labels_give_the_correction_for_all_rows_of_the_site():
    prior = LinePrior(0.0, level=0.1, slope=0.1, noise=1.0, spread=NO_SPREAD)
    rng = np.random.default_rng(0)
    outputs = rng.normal(size=(10_000, 1))
    y = 3.0 + 1.5 * outputs[:, 0] + 0.1 * rng.normal(size=10_000)
    level, slope = SiteLabels.from_rows(outputs, y).correction(prior)
    assert (level, slope) == (pytest.approx(3.0, abs=0.02), pytest.approx(0.5, abs=0.02))


def test_labels_of_similar_rows_have_less_weight():
    held_out = outputs_with_levels(np.linspace(-1, 1, 10), np.zeros(10))
    prior = LinePrior.learn(held_out)
    rng = np.random.default_rng(0)
    random, alike = rng.normal(size=(10, 1)), 0.01 * rng.normal(size=(10, 1))
    moved = [
        SiteLabels.from_rows(outputs, outputs[:, 0] + 1.0).correction(prior)[0]
        for outputs in (random, alike)
    ]
    assert prior.spread.weights(random[None])[0] > 0.95
    assert moved[1] < 0.8 * moved[0]


def test_the_order_of_labels_does_not_change_the_result():
    rng = np.random.default_rng(0)
    outputs, y = rng.dirichlet(np.ones(3), size=30), rng.integers(3, size=30)
    prior = ClassPrior(0.5, np.full(3, 1 / 3), False, NO_SPREAD)
    order = rng.permutation(30)
    in_one_call = SiteLabels.from_rows(outputs, y)
    in_two_calls = SiteLabels.from_rows(outputs[order[:11]], y[order[:11]]).join(
        SiteLabels.from_rows(outputs[order[11:]], y[order[11:]])
    )
    assert (in_one_call.correction(prior) == in_two_calls.correction(prior)).all()


def test_with_one_domain_the_default_scale_is_used():
    prior = LinePrior.learn(outputs_with_levels([0.0], [0.0]))
    assert prior.level == prior.noise  # one label moves the level halfway
    assert ClassPrior.learn(class_outputs(n_domains=1)).scale == 0.5
