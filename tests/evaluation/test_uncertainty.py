"""Intervals and seen scores, each compared with a simple independent computation."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    balanced_accuracy_score,
    mean_absolute_error,
    roc_auc_score,
    root_mean_squared_error,
)
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from domainwise import evaluate
from domainwise.evaluation import gather, jobs, results
from domainwise.evaluation.failures import score_columns
from domainwise.evaluation.gather import domain_interval
from domainwise.evaluation.problem import make_problem, seen_splits
from domainwise.evaluation.results import Prediction, pooled_score, resampled, weighted_scores
from domainwise.held_out.scoring.measures import choose_measure
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


@pytest.mark.parametrize(
    ("name", "score"),
    [
        ("accuracy", lambda y, p: np.mean(y == p)),
        ("balanced_accuracy", balanced_accuracy_score),
        ("neg_root_mean_squared_error", lambda y, p: -root_mean_squared_error(y, p)),
        ("neg_mean_absolute_error", lambda y, p: -mean_absolute_error(y, p)),
        ("neg_mean_squared_error", lambda y, p: -np.mean((y - p) ** 2)),
    ],
)
def test_weighted_scores_equal_scores_of_the_drawn_rows(name, score):
    site = record(numbers=name.startswith("neg_"))
    counts = np.random.default_rng(0).multinomial(30, np.full(30, 1 / 30), size=20)
    scores = weighted_scores(name, site, counts.astype(float), NAMES)
    for drawn, actual in zip(counts, scores, strict=True):
        rows = np.repeat(np.arange(30), drawn)
        expected = score(site.target[rows], site.prediction[rows])
        assert actual == pytest.approx(expected, abs=1e-12)


def test_bootstrap_scores_of_other_measures_come_from_the_scorer():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=200)
    decisions = y + rng.normal(size=200)
    site = Prediction(y, (decisions > 0.5).astype(int), None, decisions, row=np.arange(200))
    measure = choose_measure("roc_auc", y, True)
    draws = resampled(measure, np.array([0, 1]), [site])
    rng, rows = np.random.default_rng([0, 200]), np.empty((100, 200), dtype=int)
    for label in (0, 1):  # classes keep their sizes
        own = np.flatnonzero(y == label)
        rows[:, own] = rng.choice(own, (100, len(own)))
    expected = [roc_auc_score(y[at], decisions[at]) for at in rows]
    np.testing.assert_allclose(draws[:100], expected)


def test_the_best_method_and_the_baseline_have_intervals_for_every_metric():
    X, y, domain = table((20, 20, 20))
    methods = ["linear", ("one", LogisticRegression()), ("two", LogisticRegression(C=1e-4))]
    evaluation = evaluate(X, y, domain, methods=methods, scoring="roc_auc", progress=False)
    wide = {r.key: [high > low for low, high in r.ends.values()] for r in evaluation.results}
    assert all(all(wide[r.key]) for r in (evaluation.best, evaluation.baseline))
    # The standard error of an AUC has a formula, so all methods can be pooled.
    assert all(min(r.errors.values()) > 0 for r in evaluation.results)
    assert evaluation.between_sites("two").n_sites == 3
    assert all(np.isfinite(result.generalization_gap) for result in evaluation.described)


def test_models_for_a_domain_that_is_held_out_twice_are_scored_on_the_same_drawn_rows():
    measure = choose_measure("accuracy", NAMES, True)
    one = record(seed=1)
    two = replace(one, prediction=record(seed=2).prediction)
    both = resampled(measure, NAMES, [one, two])
    separate = [resampled(measure, NAMES, [site]) for site in (one, two)]
    np.testing.assert_allclose(both, np.mean(separate, axis=0))


def test_parts_of_a_domain_are_scored_together():
    measure = choose_measure("balanced_accuracy", NAMES, True)
    whole = record(60)
    parts = [replace(whole.take(np.s_[i::2]), row=whole.row[i::2]) for i in (0, 1)]
    expected = balanced_accuracy_score(whole.target, whole.prediction)
    assert pooled_score(measure, NAMES, parts) == pytest.approx(expected)


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
    assert evaluation.to_dict()["methods"][0]["around"]["mean"] == pytest.approx(
        (low, high), abs=0.02
    )
    for name, hit in zip(evaluation.domains, hits, strict=True):
        alone = [hit[rng.integers(len(hit), size=len(hit))].mean() for _ in range(4000)]
        assert evaluation.best.ends[name] == pytest.approx(
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


def test_a_domain_without_errors_has_the_exact_interval_for_its_share():
    X, y, domain = table((30, 30, 30))
    X[:, 0] = 100.0 * (2 * y - 1)
    evaluation = evaluate(X, y, domain, methods=["linear"], scoring="accuracy", progress=False)
    for name in evaluation.domains:
        assert evaluation.best.ends[name] == pytest.approx((0.025 ** (1 / 30), 1.0))
    columns = score_columns(evaluation)
    assert set(columns["accuracy"].values()) == {"1.0"}
    assert set(columns["95 %"].values()) == {"0.9 to 1.0"}


def test_a_class_without_errors_does_not_make_the_interval_of_a_domain_too_narrow():
    target = np.repeat(["a", "b"], [11, 89])
    predicted = np.where(np.arange(100) < 60, target, "a")  # all of a, and 49 of 89
    site = Prediction(target, predicted, row=np.arange(100))
    measure = choose_measure("balanced_accuracy", target, True)
    draws = resampled(measure, NAMES[:2], [site])
    low, high = domain_interval(measure, [site], draws)
    few, many = (binomtest(*of).proportion_ci(0.95, "exact") for of in ((11, 11), (49, 89)))
    score = (1 + 49 / 89) / 2
    assert low == pytest.approx(score - np.hypot(1 - few.low, 49 / 89 - many.low) / 2)
    assert high == pytest.approx(score + (many.high - 49 / 89) / 2)
    twice = domain_interval(measure, [site, site], draws)  # held out twice, with the same rows
    assert twice == pytest.approx((low, high))
    assert low < np.quantile(draws, 0.025)
    target[0], predicted[:2] = "b", "b"
    assert domain_interval(measure, [site], draws) == tuple(np.quantile(draws, (0.025, 0.975)))


def test_samples_without_a_defined_score_cause_no_nan_and_no_warning():
    rng = np.random.default_rng(0)
    y = np.r_[1, np.zeros(19, dtype=int)]  # a third of all draws has no event
    site = Prediction(y, y, None, y + rng.normal(size=20), row=np.arange(20))
    measure = choose_measure("roc_auc", y, True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draws = resampled(measure, np.array([0, 1]), [site])
    assert np.isfinite(draws).all()


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


@pytest.mark.parametrize("name", ["accuracy", "balanced_accuracy", "neg_root_mean_squared_error"])
def test_samples_of_representative_rows_vary_like_samples_of_all_rows(name, monkeypatch):
    rng = np.random.default_rng(0)
    target = rng.choice(3, 4000, p=[0.6, 0.3, 0.1])
    predicted = np.where(rng.random(4000) < 0.7, target, rng.integers(3, size=4000))
    if name.startswith("neg"):
        target, predicted = 1.0 * target, target + rng.exponential(size=4000)
    site = Prediction(target, predicted, row=np.arange(4000))
    measure = choose_measure(name, target, not name.startswith("neg"))
    representative = resampled(measure, np.arange(3), [site])
    monkeypatch.setattr(results, "MANY_ROWS", 5000)
    all_rows = resampled(measure, np.arange(3), [site])
    assert representative.mean() == pytest.approx(all_rows.mean(), abs=4 * all_rows.std() / 20)
    assert representative.std() == pytest.approx(all_rows.std(), rel=0.2)


def test_intervals_and_scores_of_held_out_domains_are_computed_once(monkeypatch):
    scored, drawn = [], []
    score, draw = jobs.JobScorer._held_out_score, gather.resampled

    def count_score(self, prediction, y_train):
        scored.append(prediction)
        return score(self, prediction, y_train)

    def count_draw(*arguments):
        drawn.append(arguments)
        return draw(*arguments)

    monkeypatch.setattr(jobs.JobScorer, "_held_out_score", count_score)
    monkeypatch.setattr(gather, "resampled", count_draw)
    X, y, domain = table((20, 20, 20), gap=3.0)  # no column predicts so well that it is suspicious
    evaluate(X, y, domain, methods=["constant", "linear"], progress=False)
    assert len(scored) == len(drawn) == 6  # two methods on three domains
