"""Intervals and seen scores, each compared with a simple independent computation."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from domainwise import evaluate
from domainwise.evaluation import gather, jobs
from domainwise.evaluation.page import score_columns
from domainwise.evaluation.problem import make_problem, seen_splits
from domainwise.evaluation.results import (
    MethodResult,
    Prediction,
    Results,
    merge_by_domain,
    record_score,
)
from domainwise.held_out.scoring.measures import choose_measure
from domainwise.held_out.scoring.pooling import score_error
from domainwise.held_out.scoring.predictions import Outputs
from domainwise.held_out.scoring.statistics import expected_score, widened_interval

NAMES = np.array(["a", "b", "c"])


def table(sizes=(40, 40, 40, 40), seed=0, gap=1.0):
    rng = np.random.default_rng(seed)
    domain = np.repeat([f"site {i}" for i in range(len(sizes))], sizes)
    X = rng.normal(size=(len(domain), 2))
    y = (X[:, 0] + rng.normal(0, gap, len(X)) > 0).astype(int)
    return X, y, domain


def record(n=30, seed=0, numbers=False):
    rng = np.random.default_rng(seed)
    target = rng.normal(size=n) if numbers else NAMES[rng.integers(3, size=n)]
    predicted = target + rng.normal(size=n) if numbers else NAMES[rng.integers(3, size=n)]
    return Prediction(target, predicted, row=np.arange(n))


def test_the_best_method_and_the_baseline_have_intervals_for_every_metric():
    X, y, domain = table((20, 20, 20))
    methods = ["linear", ("one", LogisticRegression()), ("two", LogisticRegression(C=1e-4))]
    evaluation = evaluate(X, y, domain, methods=methods, scoring="roc_auc", progress=False)
    # The standard error of an AUC has a formula, so all methods have intervals and can be pooled.
    assert all(min(r.errors.values()) > 0 for r in evaluation.results)
    for result in evaluation.results:
        assert all(np.diff(evaluation.ends(result, d)) > 0 for d in result.known)
    assert evaluation.between_sites("two").n_sites == 3
    assert all(np.isfinite(result.generalization_gap) for result in evaluation.described)


def test_parts_of_a_domain_are_scored_together():
    measure = choose_measure("balanced_accuracy", NAMES, True)
    whole = record(60)
    parts = [whole.take(np.s_[i::2]) for i in (0, 1)]
    expected = balanced_accuracy_score(whole.target, whole.prediction)
    (merged,) = merge_by_domain(parts)
    assert record_score(measure, NAMES, merged) == pytest.approx(expected)


def test_intervals_equal_those_from_domains_and_rows_resampled_by_hand():
    X, y, domain = table(gap=2.0)
    evaluation = evaluate(X, y, domain, methods=["linear"], scoring="accuracy", progress=False)
    hits = [r.target == r.prediction for r in evaluation.records["linear"]]
    rng = np.random.default_rng(7)
    means = [np.mean([hits[d].mean() for d in rng.integers(4, size=4)]) for _ in range(4000)]
    low, high = widened_interval(evaluation.best.mean, np.array(means), 4, 1.0)
    assert evaluation.expect(evaluation.best) == pytest.approx(
        (evaluation.best.mean, low, high), abs=0.02
    )
    stored = evaluation.to_dict()["methods"][0]
    assert (stored["low"], stored["high"]) == pytest.approx((low, high), abs=0.02)
    for name, hit in zip(evaluation.domains, hits, strict=True):
        alone = [hit[rng.integers(len(hit), size=len(hit))].mean() for _ in range(4000)]
        assert evaluation.ends(evaluation.best, name) == pytest.approx(
            np.quantile(alone, (0.025, 0.975)), abs=0.03
        )


def test_the_gap_is_the_mean_of_seen_minus_unseen_scores():
    X, y, domain = table()
    other = domain == "site 3"  # where the first column has the opposite effect
    rows = np.column_stack([X[:, 0] * np.where(other, -1, 1), X[:, 0] * other])
    evaluation = evaluate(rows, y, domain, methods=["linear"], scoring="accuracy", progress=False)
    gaps = np.array(
        [evaluation.best.seen[d] - evaluation.best.known[d] for d in evaluation.domains]
    )
    assert evaluation.best.generalization_gap == pytest.approx(gaps.mean())
    assert gaps.mean() > 0.1


def test_a_domain_without_errors_has_an_interval_that_ends_at_one():
    X, y, domain = table((30, 30, 30))
    X[:, 0] = 100.0 * (2 * y - 1)
    evaluation = evaluate(X, y, domain, methods=["linear"], scoring="accuracy", progress=False)
    for name in evaluation.domains:
        low, high = evaluation.ends(evaluation.best, name)
        assert (high, low) == (1.0, pytest.approx(0.025 ** (1 / 30), abs=0.1))
    columns = score_columns(evaluation)
    assert set(columns["accuracy"].values()) == {"1.0"}
    assert set(columns["95 %"].values()) == {"0.8 to 1.0"}


@pytest.mark.parametrize("scoring", ["accuracy", "balanced_accuracy", "roc_auc", "neg_log_loss"])
def test_intervals_for_a_domain_have_about_their_nominal_coverage(scoring):
    rng, classes, n_covered = np.random.default_rng(0), np.array([0, 1]), 0
    n_sites, n = 12 if scoring == "neg_log_loss" else 40, 120

    def drawn(n):
        """Outputs for n rows from one population, a fifth of them events."""
        value = rng.normal(size=n)
        p = 1 / (1 + np.exp(1.9 - 1.5 * value))
        y = (rng.random(n) < p).astype(int)
        return Outputs(y, (p > 0.3).astype(int), np.column_stack([1 - p, p]))

    measure = choose_measure(scoring, classes, True)
    true_score = measure.score_outputs(classes, drawn(200_000))
    for _ in range(10):
        scores, errors = {}, {}
        for name in range(n_sites):
            site = drawn(n)
            scores[name] = measure.score_outputs(classes, site)
            errors[name] = score_error(measure, classes, site, scores[name], n_draws=40)
        result = MethodResult("linear", "", "baseline", "", scores, errors=errors)
        counts = dict.fromkeys(scores, n)
        results = Results([result], [*scores], measure, {}, {"classes": None}, row_counts=counts)
        for name in scores:
            low, high = results.ends(result, name)
            n_covered += low <= measure.shown(true_score) <= high
    assert 0.92 < n_covered / (10 * n_sites) < 0.98


def test_scores_on_seen_domains_equal_those_of_random_folds_written_by_hand(monkeypatch):
    # The loop below does not calibrate probabilities, which could change predictions.
    monkeypatch.setattr("domainwise.models.tuning.improves", lambda *arguments: False)
    X, y, domain = table()
    X[domain == "site 3"] += 4.0
    evaluation = evaluate(X, y, domain, methods=["linear"], scoring="accuracy", progress=False)
    codes = np.unique(domain, return_inverse=True)[1]
    # Rows are divided in the order of their content, which is also that of the searches.
    order = evaluation.source.by_content(np.arange(len(y)))
    folds = StratifiedKFold(4, shuffle=True, random_state=0).split(order, (2 * codes + y)[order])
    searches = list(dict.fromkeys(codes[order].tolist()))
    right = np.zeros(len(y))
    for (train, test), search in zip(folds, searches, strict=True):
        train, test = order[train], order[test]
        chosen = evaluation.best.parameters[search]
        scale = StandardScaler().fit(X[train])
        model = LogisticRegression(C=chosen["C"], max_iter=1000)
        model.fit(scale.transform(X[train]), y[train])
        right[test] = model.predict(scale.transform(X[test])) == y[test]
    expected = {name: right[domain == name].mean() for name in evaluation.domains}
    assert evaluation.best.seen == pytest.approx(expected)
    assert evaluation.best.generalization_gap == pytest.approx(
        np.mean(list(expected.values())) - evaluation.best.mean
    )


def test_a_constant_prediction_has_no_generalization_gap():
    X, _, domain = table()
    y = np.tile([0, 0, 1], 54)[:160]
    evaluation = evaluate(X, y, domain, methods=["constant"], scoring="accuracy", progress=False)
    assert evaluation.best.generalization_gap == pytest.approx(0.0)


def test_intervals_for_a_mean_have_about_their_nominal_coverage():
    rng, n_covered, n_two_stage = np.random.default_rng(0), 0, 0
    draws = np.random.default_rng(1).integers(8, size=(500, 8))
    for _ in range(400):
        means = rng.normal(0.7, 0.03, size=8)
        hits = rng.random((8, 60)) < means[:, None]
        _, low, high = expected_score(hits.mean(axis=1), 0)
        n_covered += low <= 0.7 <= high
        scores = np.array([h[rng.integers(60, size=(50, 60))].mean(axis=1) for h in hits])
        two_stage = scores[draws, rng.integers(50, size=draws.shape)].mean(axis=1)
        low, high = widened_interval(float(hits.mean()), two_stage, 8, 1.0)
        n_two_stage += low <= 0.7 <= high
    assert 0.92 < n_covered / 400 < 0.98
    # Drawing rows as well would count their noise twice.
    assert n_two_stage / 400 > 0.98


def test_rows_without_repeated_strata_have_no_random_folds():
    X, y, domain = table((80, 80, 80))
    asked = dict(task="auto", scoring=None, max_rows=None, random_state=0)
    problem = make_problem(X, y, domain, **asked)
    assert [len(train) for train, _ in seen_splits(problem, 4)] == [180] * 4
    single = replace(problem, codes=np.arange(240), domains=np.arange(240))
    assert seen_splits(single, 4) == []


def test_intervals_and_scores_of_held_out_domains_are_computed_once(monkeypatch):
    scored, drawn = [], []
    score, draw = jobs._held_out_score, gather.score_error

    def count_score(problem, prediction, y_train):
        scored.append(prediction)
        return score(problem, prediction, y_train)

    def count_draw(*arguments):
        drawn.append(arguments)
        return draw(*arguments)

    monkeypatch.setattr(jobs, "_held_out_score", count_score)
    monkeypatch.setattr(gather, "score_error", count_draw)
    X, y, domain = table((20, 20, 20), gap=3.0)  # no column predicts so well that it is suspicious
    evaluate(X, y, domain, methods=["constant", "linear"], progress=False)
    assert len(scored) == len(drawn) == 6  # two methods on three domains
