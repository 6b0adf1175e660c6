"""Scores with context on whole held-out domains, and on parts of them."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression

import domainwise
from domainwise.evaluation.folder import read_evaluation
from domainwise.evaluation.gather import BATCHES, batch_scores
from domainwise.evaluation.jobs import predict_parts
from domainwise.evaluation.problem import make_problem
from domainwise.evaluation.results import Prediction
from domainwise.held_out.scoring.measures import choose_measure
from domainwise.held_out.scoring.predictions import Predictions


class Relative(ClassifierMixin, BaseEstimator):
    """Predicts from the sign of a value; with domains, of its difference from the domain mean."""

    def fit(self, X, y, sample_domain=None):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X, sample_domain=None):
        X = np.asarray(X)[:, 0]
        if sample_domain is not None:
            domain = np.asarray(sample_domain)
            X = X - np.array([X[domain == name].mean() for name in domain])
        return self.classes_[(X > 0).astype(int)]


def drifting(n=60, drift=0.0, seed=0):
    """Domains with different means; with drift, the first half of the rows is lower."""
    rng = np.random.default_rng(seed)
    domain = np.repeat(np.arange(6), n)
    inside = rng.normal(size=6 * n)
    late = np.tile(np.arange(n) >= n // 2, 6)
    inside += drift * np.where(late, 1.0, -1.0)
    x = inside + rng.normal(0, 3, 6)[domain]
    y = np.where(inside > 0, "yes", "no")
    return np.column_stack([x, rng.normal(size=6 * n)]), y, domain


def by_hand(X, y, domain, kind):
    """Mean score of `Relative` over domains, from a loop over batches."""
    scores = []
    for name in np.unique(domain):
        rows = np.flatnonzero(domain == name)
        rows = {"first half": rows[: len(rows) // 2], "last half": rows[len(rows) // 2 :]}.get(
            kind, rows
        )
        relative = X[rows, 0] - X[rows, 0].mean()
        right = np.where(relative > 0, "yes", "no") == y[rows]
        scores.append(np.mean([right[y[rows] == c].mean() for c in np.unique(y[rows])]))
    return np.mean(scores)


def evaluated(X, y, domain, **options):
    return domainwise.evaluate(
        X,
        y,
        domain,
        methods=[("mine", Relative()), ("other", LogisticRegression())],
        scoring="balanced_accuracy",
        progress=False,
        prepare=False,
        **options,
    )


def test_batch_scores_equal_scores_from_loops_over_domains():
    X, y, domain = drifting(drift=0.5)
    result = evaluated(X, y, domain).find("mine+context")
    assert tuple(result.batches) == BATCHES
    assert {means["domains"] for means in result.batches.values()} == {6}
    for kind in ("whole", "first half", "last half"):
        assert result.batches[kind]["context"] == pytest.approx(by_hand(X, y, domain, kind))
    assert result.batches["whole"]["context"] == pytest.approx(result.mean)
    assert result.batches["random tenth"]["context"] < result.batches["whole"]["context"]


def test_context_does_not_hold_up_if_a_part_differs_from_the_whole():
    steady = evaluated(*drifting(drift=0.0)).find("mine+context")
    assert steady.holds_up
    X, y, domain = drifting(drift=1.5)
    X[:, 0] -= np.array([X[domain == d, 0].mean() for d in range(6)])[
        domain
    ]  # the domain means are equal
    X[:, 0] += np.random.default_rng(1).normal(0, 0.5, 6)[domain]
    drifted = evaluated(X, y, domain).find("mine+context")
    gains = {kind: means["context"] - means["plain"] for kind, means in drifted.batches.items()}
    assert gains["whole"] > 0 > gains["first half"] + drifted.batches["first half"]["error"]
    assert not drifted.holds_up
    assert not evaluated(X, y, domain).find("other").holds_up


def test_a_folder_contains_the_batch_scores(tmp_path):
    pytest.importorskip("pyarrow")
    X, y, domain = drifting()
    result = evaluated(X, y, domain, out=tmp_path / "run").find("mine+context")
    assert read_evaluation(tmp_path / "run")[0].find("mine+context").batches == result.batches


def test_a_part_is_predicted_without_the_rest_of_its_domain():
    X, y, domain = drifting()
    rows = np.flatnonzero(domain == 2)
    model = Relative().fit(X, y)
    whole = Predictions(model, X[rows], np.array(["no", "yes"]))
    outputs = replace(whole.outputs(y[rows]), domain=2)
    record = Prediction(**vars(outputs), row=rows)
    options = {"task": "auto", "scoring": None, "max_rows": None, "random_state": 0}
    halves, tenths = predict_parts(whole, record, make_problem(X, y, domain, **options))
    np.testing.assert_array_equal(halves.prediction[30:], model.predict(X[rows[30:]], np.zeros(30)))
    assert (halves.domain, halves.kind, tenths.kind) == (2, "halves", "tenths")
    assert (tenths.prediction != halves.prediction).any()
    measure = choose_measure("roc_auc", y, True, None, domain)
    assert batch_scores(measure, np.array(["no", "yes"]), [], [record]) == {}
