"""Standard errors of the scores of a site, compared with bootstrap samples and with formulas."""

import numpy as np
import pytest

from domainwise.held_out.scoring.measures import choose_measure
from domainwise.held_out.scoring.pooling import (
    auc_error,
    bootstrap_scores_of,
    pool_measure,
    scale_of,
    score_error,
    true_score_range,
)
from domainwise.held_out.scoring.predictions import Outputs

CLASSES = np.array(["a", "b"])


def made_record(rng, n=300, *, classes=True):
    y = np.arange(n) < n // 4
    output = rng.normal(size=n) + 1.2 * y
    if not classes:
        target = rng.gamma(2.0, size=n)
        prediction = target + 0.5 * rng.normal(size=n)
        return Outputs(target, prediction)
    p = 1 / (1 + np.exp(1.5 - output))
    probabilities = np.column_stack([1 - p, p])
    return Outputs(CLASSES[y.astype(int)], CLASSES[(p > 0.4).astype(int)], probabilities)


def test_errors_of_auc_agree_with_the_formula_over_all_pairs():
    rng = np.random.default_rng(0)
    y = rng.random(60) < 0.4
    scores = np.round(rng.normal(size=60) + y, 1)  # with ties
    pairs = (scores[y][:, None] > scores[~y]) + 0.5 * (scores[y][:, None] == scores[~y])
    auc, error = auc_error(y, scores)
    assert auc == pytest.approx(pairs.mean())
    variance = pairs.mean(axis=1).var(ddof=1) / y.sum() + pairs.mean(axis=0).var(ddof=1) / sum(~y)
    assert error == pytest.approx(np.sqrt(variance))
    assert np.isnan(auc_error(np.ones(3, dtype=bool), np.arange(3.0))[0])


ERRORS = [f"neg_{name}_error" for name in ("root_mean_squared", "mean_squared", "mean_absolute")]


@pytest.mark.parametrize("scoring", ["accuracy", "balanced_accuracy", "roc_auc", *ERRORS])
def test_formulas_agree_with_bootstrap_samples(scoring):
    rng, is_classification = np.random.default_rng(1), not scoring.startswith("neg")
    record = made_record(rng, classes=is_classification)
    classes = CLASSES if is_classification else None
    measure = choose_measure(scoring, record.target, is_classification)
    score = measure.score_outputs(classes, record)
    draws = bootstrap_scores_of(measure, classes, record, 400)
    assert score_error(measure, classes, record, score) == pytest.approx(draws.std(), rel=0.12)


def test_other_errors_are_bootstrap_errors_on_the_scale_of_the_metric():
    rng = np.random.default_rng(2)
    record = made_record(rng, classes=False)
    measure = choose_measure("r2", record.target, False)
    score = measure.score_outputs(None, record)
    assert np.isnan(score_error(measure, None, record, score, 0))
    draws = bootstrap_scores_of(measure, None, record)
    expected = np.log(1 - draws).std(ddof=1) * (1 - score)
    error = score_error(measure, None, record, score)
    assert error == pytest.approx(expected)
    shuffled = record.take(rng.permutation(len(record.target)))
    assert score_error(measure, None, shuffled, score) == pytest.approx(error, rel=1e-12)


def test_classes_keep_their_sizes_if_the_score_does_not_depend_on_them():
    record = made_record(np.random.default_rng(3), n=8)

    def share(classes, record, rows):
        return np.mean(record.target[rows] == "b")

    class Share:
        name = "roc_auc"
        score_outputs = staticmethod(share)

    shares = bootstrap_scores_of(Share, CLASSES, record)
    np.testing.assert_array_equal(shares, 0.25)
    Share.name = "neg_log_loss"
    assert bootstrap_scores_of(Share, CLASSES, record).std() > 0.1


def test_perfect_scores_have_an_error_and_are_moved_inside_by_half_a_row():
    y = np.array(["a"] * 15 + ["b"] * 5)
    p = np.where(y == "b", 0.9, 0.1)
    record = Outputs(y, y, np.column_stack([1 - p, p]))
    for scoring in ("accuracy", "balanced_accuracy", "roc_auc"):
        measure = choose_measure(scoring, y, True)
        assert 0.01 < score_error(measure, CLASSES, record, 1.0) < 0.2
    measure = choose_measure("accuracy", y, True)
    scores, errors, n_rows = np.array([1.0, 0.9]), np.array([0.05, 0.05]), np.array([20, 30])
    pooled = pool_measure(measure, scores, errors, n_rows)
    assert (pooled.n_sites, pooled.n_left_out) == (2, 0)
    assert 0.9 < pooled.mean < 0.975


@pytest.mark.parametrize(
    ("scoring", "scale"),
    [
        ("roc_auc_ovr", "logit"),
        ("f1_macro", "logit"),
        ("neg_log_loss", "log"),
        ("r2", "log1m"),
        ("neg_mean_absolute_error", "log"),
        ("matthews_corrcoef", "identity"),
    ],
)
def test_the_scale_follows_from_the_metric(scoring, scale):
    is_classification = "absolute" not in scoring and scoring != "r2"
    y = CLASSES if is_classification else np.array([0.1, 0.2])
    assert scale_of(choose_measure(scoring, y, is_classification)) == scale


@pytest.mark.parametrize("scoring", ["accuracy", "neg_log_loss"])
def test_chance_in_the_number_of_events_is_no_difference_between_sites(scoring):
    """With few events, accuracy and log loss of a site depend on how many it happens to have."""
    rng, n_different = np.random.default_rng(0), 0
    measure = choose_measure(scoring, CLASSES, True)
    n_repeats = 10 if scoring == "neg_log_loss" else 30  # its errors are bootstrap estimates
    for _ in range(n_repeats):
        records = []
        for _ in range(8):
            p = np.clip(rng.beta(0.7, 9.0, size=150), 0.001, 0.99)
            y = rng.random(150) < p
            probabilities = np.column_stack([1 - p, p])
            records.append(Outputs(CLASSES[y.astype(int)], np.full(150, "a"), probabilities))
        scores = np.array([measure.score_outputs(CLASSES, record) for record in records])
        errors = [
            score_error(measure, CLASSES, r, s, 50) for r, s in zip(records, scores, strict=True)
        ]
        shown = measure.sign * scores
        n_different += pool_measure(measure, shown, np.array(errors), np.full(8, 150)).differ
    assert n_different <= n_repeats / 7


def test_the_range_of_the_true_score_is_narrower_than_that_of_measured_scores():
    rng = np.random.default_rng(4)
    records = [made_record(rng, n=80) for _ in range(10)]
    measure = choose_measure("neg_log_loss", CLASSES, True)
    low, high = true_score_range(measure, CLASSES, records)
    scores = [measure.score_outputs(CLASSES, record) for record in records]
    assert min(scores) < low < np.mean(scores) < high < max(scores) < 0
    assert true_score_range(measure, CLASSES, records[:3]) is None
