"""Corrections equal independent computations, also in limiting cases."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LinearRegression

from domainwise.estimators.adaptation.corrections import (
    LABEL_COUNTS,
    WITHIN_WEIGHTS,
    ClassPrior,
    LinePrior,
    SourceOutputs,
    Spread,
    WithinPrior,
    learn_prior,
    learn_within,
    smooth_logs,
)
from domainwise.estimators.adaptation.site import SiteLabels

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
    prior = learn_prior(outputs_with_levels(levels, slopes))
    assert prior.level == pytest.approx(np.mean(levels**2), rel=0.05)
    assert prior.slope == pytest.approx(np.mean(slopes**2), rel=0.1)
    assert prior.noise == pytest.approx(0.25 + np.mean(slopes**2), rel=0.1)


def test_without_differences_between_domains_predictions_are_not_corrected():
    prior = learn_prior(outputs_with_levels(np.zeros(30), np.zeros(30)))
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


def test_biases_and_slope_are_the_maximum_of_the_posterior():
    rng = np.random.default_rng(0)
    centre = np.array([-1.0, -1.5, -2.0])
    prior = ClassPrior(0.6, 0.3, centre, np.full(3, 1 / 3), NO_SPREAD)
    probabilities, y = rng.dirichlet(np.ones(3), size=9), rng.integers(3, size=9)
    logs = smooth_logs(probabilities)

    def negative_log_posterior(terms):
        corrected = logs + terms[:3] + terms[3] * (logs - centre)
        penalty = terms[:3] @ terms[:3] / 0.72 + terms[3] ** 2 / 0.18
        return -log_softmax(corrected, axis=1)[np.arange(9), y].sum() + penalty

    best = minimize(negative_log_posterior, np.zeros(4), tol=1e-14).x
    terms = prior.corrections(probabilities[None], y[None])[0]
    assert terms == pytest.approx(best, abs=1e-5)
    assert terms[:3].sum() == pytest.approx(0.0, abs=1e-12)
    corrected = softmax(logs + terms[:3] + terms[3] * (logs - centre), axis=1)
    assert prior.apply(np.exp(logs), terms) == pytest.approx(corrected)


def test_the_scale_grows_with_differences_between_domains():
    small = learn_prior(class_outputs(bias=0.0))
    large = learn_prior(class_outputs(bias=1.5))
    assert small.scale <= 0.125
    assert 1.0 <= large.scale <= 2.0


def test_the_slope_has_a_scale_if_domains_are_over_and_underconfident():
    rng = np.random.default_rng(0)
    domain = np.repeat(np.arange(12), 150)
    logits = 2.0 * rng.normal(size=len(domain))
    slopes = np.where(np.arange(12) % 2, 0.5, 1.5)
    y = (rng.uniform(size=len(domain)) < 1 / (1 + np.exp(-slopes[domain] * logits))).astype(int)
    p = 1 / (1 + np.exp(-logits))
    held_out = SourceOutputs(y, domain, np.column_stack([1 - p, p]))
    prior = learn_prior(held_out)
    assert prior.slope == 0.4
    assert prior.scale <= 0.25
    overconfident = domain == 1
    labels = held_out.outputs[overconfident], y[overconfident]
    assert SiteLabels.from_rows(*labels).correction(prior)[-1] < -0.3


def test_without_labels_outputs_are_identical():
    line, classes = learn_prior(outputs_with_levels([0, 1], [0, 0])), class_outputs()
    prior = learn_prior(classes)
    none = SiteLabels.from_rows(np.zeros((0, 1)), np.zeros(0))
    outputs = np.random.default_rng(0).normal(size=(20, 1))
    assert (line.apply(outputs, none.correction(line)) == outputs).all()
    none = SiteLabels.from_rows(np.zeros((0, 3)), np.zeros(0, dtype=int))
    assert (prior.apply(classes.outputs, none.correction(prior)) == classes.outputs).all()


def test_labels_of_one_class_give_bounded_biases():
    prior = ClassPrior(2.0, 0.0, np.log([0.5, 0.5]), np.array([0.5, 0.5]), NO_SPREAD)
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
    prior = learn_prior(held_out)
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
    prior = ClassPrior(0.5, 0.2, np.full(3, -1.0), np.full(3, 1 / 3), NO_SPREAD)
    order = rng.permutation(30)
    in_one_call = SiteLabels.from_rows(outputs, y)
    in_two_calls = SiteLabels.from_rows(outputs[order[:11]], y[order[:11]]).join(
        SiteLabels.from_rows(outputs[order[11:]], y[order[11:]])
    )
    assert (in_one_call.correction(prior) == in_two_calls.correction(prior)).all()


def test_with_one_domain_the_default_scale_is_used():
    prior = learn_prior(outputs_with_levels([0.0], [0.0]))
    assert prior.level == prior.noise  # one label moves the level halfway
    assert learn_prior(class_outputs(n_domains=1)).scale == 0.5


def within_outputs(level=3.0, n_domains=10, n=60, seed=0):
    """Outputs of a model that confounds a feature with the site, and of a within-site model."""
    rng = np.random.default_rng(seed)
    domain = np.repeat(np.arange(n_domains), n)
    site = level * rng.normal(size=n_domains)[domain]
    x = site + rng.normal(size=len(domain))
    y = 2.0 * site - x + 0.3 * rng.normal(size=len(domain))  # sites with a large x have a large y
    return x, SourceOutputs(y, domain, np.column_stack([0.8 * x, -x]))


def test_the_within_site_model_is_used_if_relations_inside_sites_differ():
    _, held_out = within_outputs()
    prior = WithinPrior.learn_without(held_out, [None])[0]
    assert (prior.choices[1:4] > 0).all()
    site = held_out.take(held_out.domain_codes == 0)
    labels = SiteLabels.from_rows(site.outputs[:10], site.y[:10])
    corrected = prior.apply(site.outputs[10:], labels.correction(prior))[:, 0]
    line = learn_prior(SourceOutputs(held_out.y, held_out.domain_codes, held_out.outputs[:, :1]))
    labels = SiteLabels.from_rows(site.outputs[:10, :1], site.y[:10])
    only_line = line.apply(site.outputs[10:, :1], labels.correction(line))[:, 0]
    errors = [np.sqrt(np.mean((p - site.y[10:]) ** 2)) for p in (corrected, only_line)]
    assert errors[0] < 0.85 * errors[1]


def test_a_within_site_model_that_does_not_help_has_no_weight():
    rng, held_out = np.random.default_rng(0), outputs_with_levels(np.arange(10.0), np.zeros(10))
    columns = np.column_stack([held_out.outputs, rng.normal(size=len(held_out.y))])
    prior = WithinPrior.learn_without(
        SourceOutputs(held_out.y, held_out.domain_codes, columns), [None]
    )
    line = learn_prior(held_out)
    assert not prior[0].choices.any()
    terms = prior[0].corrections(columns[None, :7], held_out.y[None, :7])[0]
    assert terms[:2] == pytest.approx(
        line.corrections(held_out.outputs[None, :7], held_out.y[None, :7])[0]
    )
    assert terms[2] == 0.0


def test_the_level_of_the_within_site_model_is_the_mean_prediction_for_the_labelled_rows():
    line = LinePrior(0.0, level=1e-12, slope=0.0, noise=1.0, spread=NO_SPREAD)
    lines, choices = (line,) * len(WITHIN_WEIGHTS), np.full(len(LABEL_COUNTS), 4)
    prior, rng = WithinPrior(lines, choices), np.random.default_rng(0)
    outputs = rng.normal(size=(8, 2)) + np.array([5.0, 0.0])
    corrected = prior.apply(outputs, prior.corrections(outputs[None], np.zeros((1, 8)))[0])
    assert corrected.mean() == pytest.approx(outputs[:, 0].mean())
    assert np.ptp(corrected[:, 0] - outputs[:, 1]) == pytest.approx(0.0, abs=1e-9)


def test_a_within_site_model_is_fitted_only_if_levels_differ_and_it_helps():
    x, held_out = within_outputs()
    plain = SourceOutputs(held_out.y, held_out.domain_codes, held_out.outputs[:, :1])
    model, outputs = learn_within(x[:, None], plain)
    assert np.corrcoef(model.predict(x[:, None]), -x)[0, 1] > 0.9
    assert outputs.shape == x.shape
    centred = held_out.y - plain.outputs[:, 0]
    means = np.bincount(held_out.domain_codes, centred) / 60
    same_level = SourceOutputs(
        held_out.y - means[held_out.domain_codes], held_out.domain_codes, plain.outputs
    )
    assert learn_within(x[:, None], same_level) is None
    assert learn_within(x[:120, None], plain.take(np.arange(120))) is None  # two domains


def test_weights_of_rows_count_like_repeated_rows_in_a_within_site_model():
    x, held_out = within_outputs(n=30)
    weights = 1.0 + (np.arange(len(x)) % 3)
    order = np.repeat(np.arange(len(x)), weights.astype(int))
    plain = SourceOutputs(held_out.y, held_out.domain_codes, held_out.outputs[:, :1], weights)
    weighted, _ = learn_within(x[:, None], plain, [LinearRegression()])
    unweighted = SourceOutputs(plain.y[order], plain.domain_codes[order], plain.outputs[order])
    repeated, _ = learn_within(x[order, None], unweighted, [LinearRegression()])
    assert weighted.coef_ == pytest.approx(repeated.coef_)
