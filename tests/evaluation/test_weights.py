"""Weights of rows in evaluate: integer weights equal repeated rows, in fits and in scores."""

import numpy as np
import pytest
from sklearn.metrics import make_scorer, roc_auc_score
from sklearn.neighbors import KNeighborsClassifier

from domainwise import evaluate

pandas = pytest.importorskip("pandas")
RNG = np.random.default_rng(0)
N = 250
DOMAIN = np.repeat(list("abcde"), N // 5)
X = RNG.normal(size=(N, 3))
SCORE = X[:, 0] + 0.7 * RNG.normal(size=N)
Y = np.where(SCORE > 0.9, "ill", "well")
WEIGHTS = RNG.integers(0, 4, N)
COPIES = np.repeat(np.arange(N), WEIGHTS)
METHODS = ["constant", "linear", "invariantridge"]


def run(X, y, domain, weights=None, **options):
    options = {"methods": METHODS, "max_rows": None, "progress": False, **options}
    return evaluate(X, y, domain, sample_weight=weights, **options)


@pytest.fixture(scope="module")
def pair():
    """The same evaluation of weighted and of repeated rows."""
    options = {"threshold": 0.3, "pos_label": "ill"}
    weighted = run(X, Y, DOMAIN, WEIGHTS, **options)
    return weighted, run(X[COPIES], Y[COPIES], DOMAIN[COPIES], **options)


def test_scores_and_their_errors_are_those_of_repeated_rows(pair):
    weighted, repeated = pair
    assert weighted.measure.name == repeated.measure.name
    assert [r.key for r in weighted.results] == [r.key for r in repeated.results]
    for result, same in zip(weighted.results, repeated.results, strict=True):
        for name in ("scores", "errors", "probability_scores"):
            values, expected = getattr(result, name), getattr(same, name)
            assert list(values) == list(expected)
            np.testing.assert_allclose([*values.values()], [*expected.values()], rtol=1e-8)
    assert weighted.row_counts == repeated.row_counts
    assert weighted.recommended_ == repeated.recommended_
    table, same = weighted.per_domain(), repeated.per_domain()
    columns = ["score", "low", "high", "error"]
    np.testing.assert_allclose(table[columns], same[columns], rtol=1e-7)


def test_calibration_and_decisions_are_those_of_repeated_rows(pair):
    weighted, repeated = pair
    for name in ("calibration", "decision_scores"):
        table, same = getattr(weighted, name)().table, getattr(repeated, name)().table
        pandas.testing.assert_frame_equal(table, same, rtol=1e-7, check_dtype=False)
    np.testing.assert_allclose(weighted.decision_curve().mean, repeated.decision_curve().mean)
    assert weighted.validation_size() == repeated.validation_size()
    assert weighted.between_sites().mean == pytest.approx(repeated.between_sites().mean)


def test_the_recommended_model_is_fitted_to_weighted_rows(pair):
    weighted, repeated = pair
    p, expected = (e.fit("linear").predict_proba(X) for e in pair)
    np.testing.assert_allclose(p, expected, atol=1e-5)
    predictions = weighted.predictions_
    assert "weight" not in repeated.predictions_
    rows = predictions[predictions["method"] == "linear"].sort_values("row")
    assert rows["weight"].tolist() == WEIGHTS[WEIGHTS > 0].tolist()


def test_errors_of_numbers_are_weighted():
    options = {"methods": ["constant", "linear"]}
    weighted = run(X, SCORE, DOMAIN, WEIGHTS, **options)
    repeated = run(X[COPIES], SCORE[COPIES], DOMAIN[COPIES], **options)
    for result, same in zip(weighted.results, repeated.results, strict=True):
        np.testing.assert_allclose([*result.scores.values()], [*same.scores.values()])
        np.testing.assert_allclose([*result.errors.values()], [*same.errors.values()])
    table, same = weighted.calibration().table, repeated.calibration().table
    pandas.testing.assert_frame_equal(table, same, rtol=1e-7, check_dtype=False)


def test_weights_are_stored_and_belong_to_the_evaluation(tmp_path, pair):
    frame = pandas.DataFrame(X).assign(y=Y, site=DOMAIN, times=WEIGHTS)
    options = {"methods": ["constant", "linear"], "out": tmp_path, "random_state": 0}
    first = run(frame, "y", "site", "times", **options)
    assert first.source.X.shape[1] == 3
    again = run(frame, "y", "site", "times", **options)
    assert again.results[0].scores == first.results[0].scores
    from domainwise.evaluation.folder import read_evaluation

    stored, _ = read_evaluation(tmp_path)
    table = first.calibration().table
    pandas.testing.assert_frame_equal(stored.calibration().table, table, check_dtype=False)
    with pytest.raises(ValueError, match="table"):
        run(frame.assign(times=WEIGHTS[::-1]), "y", "site", "times", **options)


def test_every_default_method_accepts_weights(few_trees):
    evaluation = run(X, Y, DOMAIN, WEIGHTS + 0.5, methods=None, quick=True)
    assert len(evaluation.results) >= 6
    assert not evaluation.left_out


def test_methods_and_scorers_without_weights_are_refused():
    evaluation = run(X, Y, DOMAIN, WEIGHTS, methods=["linear", ("knn", KNeighborsClassifier())])
    assert "does not accept sample_weight" in evaluation.left_out["knn"]
    options = {"methods": ["linear"]}
    with pytest.raises(ValueError, match="does not accept sample_weight"):
        run(X, Y, DOMAIN, WEIGHTS, scoring=lambda model, X, y: 0.0, **options)
    scorer = make_scorer(roc_auc_score, response_method="predict_proba")
    custom = run(X, Y == "ill", DOMAIN, WEIGHTS, scoring=scorer, **options)
    named = run(X, Y == "ill", DOMAIN, WEIGHTS, scoring="roc_auc", **options)
    np.testing.assert_allclose([*custom.best.scores.values()], [*named.best.scores.values()])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (-WEIGHTS, "negative, missing or infinite"),
        (np.where(WEIGHTS == 3, np.nan, 1.0), "negative, missing or infinite"),
        (np.zeros(N), "zero for all rows"),
        (WEIGHTS[:5], "Pass one weight per row"),
    ],
)
def test_invalid_weights_are_an_error(weights, message):
    with pytest.raises(ValueError, match=message):
        run(X, Y, DOMAIN, weights)
