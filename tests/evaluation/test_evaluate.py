"""Scores of an evaluation, compared with loops written by hand, and which rows each step sees."""

import json
import warnings
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, root_mean_squared_error
from sklearn.model_selection import GroupKFold, LeaveOneGroupOut
from sklearn.svm import SVC

from domainwise import evaluate
from domainwise.evaluation.problem import SEEN_FOLDS
from domainwise.held_out.folds import draw_rows
from domainwise.held_out.search.grids import ALPHAS
from domainwise.models.registry import METHODS, choose_methods

QUICK = ["constant", "linear"]


@pytest.fixture
def one_width(narrow_grids):
    narrow_grids("gamma", "gammas")


def problem(n_domains=5, size=16, seed=0, regression=False):
    rng = np.random.default_rng(seed)
    domain = np.repeat([f"site {i}" for i in range(n_domains)], size)
    X = rng.normal(size=(len(domain), 3)) + rng.normal(size=(n_domains, 3)).repeat(size, axis=0)
    value = X[:, 0] - 0.5 * X[:, 1] + 0.5 * rng.normal(size=len(X))
    return X, value if regression else (value > np.median(value)).astype(int), domain


def prepared(X, train, test):
    mean, spread = X[train].mean(axis=0), X[train].std(axis=0)
    return (X[train] - mean) / spread, (X[test] - mean) / spread


def by_hand(X, y, domain, make, parameters, score):
    """Nested leave-one-domain-out as a loop; domains with one class are used only for training."""
    scores = {}
    for name in np.unique(domain):
        if len(np.unique(y[domain == name])) < 2:
            continue
        train, test = np.flatnonzero(domain != name), np.flatnonzero(domain == name)
        A, B = prepared(X, train, test)
        means = []
        for parameter in parameters:
            inner = []
            for held_out in np.unique(domain[train]):
                rows = domain[train] != held_out
                model = make(parameter).fit(A[rows], y[train][rows])
                inner.append(score(y[train][~rows], model.predict(A[~rows])))
            means.append(np.mean(inner))
        best = make(parameters[int(np.argmax(means))]).fit(A, y[train])
        scores[str(name)] = score(y[test], best.predict(B))
    return scores


def test_classification_scores_equal_those_of_a_loop_written_by_hand():
    X, y, domain = problem()
    evaluation = evaluate(X, y, domain, methods=QUICK, scoring="accuracy", inner_scoring="accuracy")
    expected = by_hand(
        X,
        y,
        domain,
        lambda C: LogisticRegression(C=C, max_iter=1000),
        [1 / alpha for alpha in ALPHAS[::-1]],
        accuracy_score,
    )
    result = evaluation.find("linear")
    assert result.known == pytest.approx(expected)
    assert [name for name in evaluation.domains if name not in expected] == ["site 0", "site 4"]
    assert result.mean == pytest.approx(np.mean(list(expected.values())))
    assert result.worst == min(expected.values()) == expected[result.worst_domain]
    assert result.spread == pytest.approx(np.std(list(expected.values()), ddof=1))


def test_regression_errors_equal_those_of_a_loop_written_by_hand_and_are_positive():
    X, y, domain = problem(regression=True)
    evaluation = evaluate(X, y, domain, methods=QUICK)
    expected = by_hand(
        X,
        y,
        domain,
        lambda alpha: Ridge(alpha=alpha),
        ALPHAS,
        lambda *pair: -root_mean_squared_error(*pair),
    )
    assert evaluation.scores["linear"] == pytest.approx(expected)
    row = evaluation.table().set_index("method").loc["ridge"]
    assert row["mean"] == pytest.approx(-np.mean(list(expected.values())))
    assert row["worst"] == pytest.approx(-min(expected.values()))
    assert evaluation.best.key == "linear"


def test_parameters_do_not_depend_on_the_held_out_domain(one_width):
    X, y, domain = problem()
    changed_X, changed_y = X.copy(), y.copy()
    last = domain == "site 4"
    changed_X[last] = 100 - 3 * X[last]
    changed_y[last] = 1 - y[last]
    plain = evaluate(X, y, domain, methods=["linear", "dcm"])
    changed = evaluate(changed_X, changed_y, domain, methods=["linear", "dcm"])
    for key in ("linear", "dcm"):
        # Splits come in the order of the domains.
        assert plain.find(key).parameters[4] == changed.find(key).parameters[4]
    assert plain.scores != changed.scores


def test_inner_splits_get_source_domains_only():
    X, y, domain = problem()
    seen = []

    class Spy(LeaveOneGroupOut):
        def split(self, X, y=None, groups=None):
            seen.append(set(np.unique(groups)))
            return super().split(X, y, groups)

    evaluate(X, y, domain, methods=["linear"], inner_cv=Spy())
    assert seen == [set(range(4))] * 5  # codes of the four source domains


class Spy(ClassifierMixin, BaseEstimator):
    """Records the rows and domains that it is fitted to."""

    seen: ClassVar = []

    def fit(self, X, y, sample_domain):
        self.classes_ = np.unique(y)
        self.seen.append((X, set(sample_domain.tolist())))
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])


def test_methods_get_rows_of_source_domains_only(monkeypatch):
    X, y, domain = problem()
    X[:, 2] = np.unique(domain, return_inverse=True)[1]  # identifies the domain, before scaling
    Spy.seen.clear()
    spied = replace(METHODS["linear"], build=lambda setting: Spy(), grids=None)
    monkeypatch.setitem(METHODS, "linear", spied)
    evaluate(X, y, domain, methods=["linear"])
    # After the fits of all splits come those for the scores on seen domains and, because the third
    # column is constant within every domain, those of all splits without this column.
    n_columns, domains = zip(*[(rows.shape[1], seen) for rows, seen in Spy.seen], strict=True)
    assert domains[:5] == domains[5 + SEEN_FOLDS :] == (set(range(4)),) * 5
    assert domains[5 : 5 + SEEN_FOLDS] == (set(range(5)),) * SEEN_FOLDS
    assert n_columns == (X.shape[1],) * (5 + SEEN_FOLDS) + (X.shape[1] - 1,) * 5
    for rows, _ in [*Spy.seen[:5], *Spy.seen[-5:]]:
        # Standardized with the mean of the sources, which the held-out domain would shift.
        assert len(rows) == 64
        np.testing.assert_allclose(rows.mean(axis=0), 0, atol=1e-12)


def test_a_method_for_classes_refuses_a_continuous_target():
    X, y, domain = problem(3, 12, regression=True)
    with pytest.raises(ValueError, match="'mda' needs classes, but the target is continuous"):
        evaluate(X, y, domain, methods=["constant", "mda"])


def test_the_default_methods_are_the_documented_ones():
    names = [method.key for method in choose_methods(None)]
    assert ",".join(names) == "constant,svm,linear,boosting,dcmcv,invariantridge,ensemble"
    assert {method.key for method in choose_methods("all")} == set(METHODS)


@pytest.mark.parametrize("regression", [False, True])
def test_every_method_runs_on_classes_and_on_continuous_targets(
    regression, narrow_grids, few_trees
):
    narrow_grids()
    X, y, domain = problem(3, 12, regression=regression)
    names = {key for key, method in METHODS.items() if not (regression and method.classes_only)}
    evaluation = evaluate(X, y, domain, methods="all")
    assert {result.key for result in evaluation.results} == names | {"ensemble+context"}
    assert not evaluation.left_out
    assert all(np.isfinite(result.mean) for result in evaluation.results)


def test_more_than_ten_domains_are_held_out_in_groups_and_scored_one_by_one():
    X, y, domain = problem(12, 8)
    evaluation = evaluate(X, y, domain, methods=QUICK)
    assert len(evaluation.domains) == 12
    assert len(evaluation.find("linear").parameters) == 10  # two groups of two


def test_results_do_not_depend_on_the_number_of_workers():
    X, y, domain = problem(3, 10)
    one, two = (evaluate(X, y, domain, methods=["linear", "coir"], n_jobs=n) for n in (1, 2))
    assert one.scores == two.scores
    assert one.verdict() == two.verdict()


def test_categories_and_missing_values_are_prepared_on_the_sources(one_width):
    pandas = pytest.importorskip("pandas")
    X, y, domain = problem(4, 14)
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    frame.loc[::7, "a"] = np.nan
    frame["kind"] = np.where(X[:, 1] > 0, "high", "low")
    frame.loc[::9, "kind"] = None
    frame.loc[domain == "site 3", "kind"] = "only here"
    evaluation = evaluate(frame, np.where(y == 1, "yes", "no"), domain, methods=["linear", "dcm"])
    assert not evaluation.left_out
    assert evaluation.facts["columns"] == 4
    assert evaluation.facts["classes"] == ["no", "yes"]


def test_rare_classes_get_balanced_accuracy_and_common_ones_accuracy():
    X, _, domain = problem(3, 20)
    even = np.tile([0, 1], 30)
    assert evaluate(X, even, domain, methods=QUICK).measure.name == "accuracy"
    even[:6:2] = 1  # shares of 0.65, 0.5 and 0.5
    assert evaluate(X, even, domain, methods=QUICK).measure.name == "accuracy"
    even[6:10:2] = 1  # of 0.75
    assert evaluate(X, even, domain, methods=QUICK).measure.name == "balanced_accuracy"
    rare = np.zeros(60, dtype=int)
    rare[[0, 1, 2, 20, 21, 22, 40, 41, 42]] = 1
    assert evaluate(X, rare, domain, methods=QUICK).measure.name == "balanced_accuracy"


def test_means_omit_a_domain_where_the_measure_is_undefined():
    X, _, domain = problem()
    y = np.tile([0, 1], len(X) // 2)
    y[domain == "site 2"] = 0
    evaluation = evaluate(X, y, domain, methods=QUICK, scoring="roc_auc")
    result = evaluation.find("linear")
    assert np.isnan(result.scores["site 2"])
    assert result.mean == pytest.approx(np.nanmean(list(result.scores.values())))
    assert any("only one class" in note and "site 2." in note for note in evaluation.notes)
    assert json.loads(evaluation.to_json())["methods"][0]["per_domain"][2]["score"] is None


def test_methods_without_probabilities_are_skipped_with_the_reason():
    X, y, domain = problem(3, 12)
    methods = ["svm", ("own", SVC())]
    evaluation = evaluate(X, y, domain, methods=methods, scoring="neg_log_loss")
    assert [result.key for result in evaluation.results] == ["svm"]
    assert "probabilities" in evaluation.left_out["own"]


def test_rows_are_drawn_evenly_and_small_domains_stay_whole():
    codes = np.repeat([0, 1, 2], [5, 100, 300])
    rows = draw_rows(codes, 65, 0)
    assert np.bincount(codes[rows]).tolist() == [5, 30, 30]
    assert np.array_equal(rows, draw_rows(codes, 65, 0))
    assert len(draw_rows(codes, 64, 0)) == 64
    assert len(draw_rows(codes, None, 0)) == 405


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (dict(sample_domain=np.zeros(80)), "one domain"),
        (dict(sample_domain=None), "sample_domain is missing. Pass the domain"),
        (dict(sample_domain=np.zeros(3)), "3 entries"),
        (dict(y=np.zeros(80)), "one class"),
        (dict(methods=["svn"]), "'svn' is unknown"),
        (dict(scoring="acuracy"), "did you mean 'accuracy'"),
        (dict(scoring="r2"), "continuous target"),
        (dict(task="clustering"), "'auto', 'classification' or 'regression'"),
        (dict(cv=GroupKFold(2)), None),
        (dict(cv=3), "both sides of a split"),
        (dict(max_rows=4), "fewer than two rows"),
        (dict(X=np.full((80, 2), np.inf)), "infinity"),
    ],
)
def test_invalid_input_is_refused_with_the_reason(change, words):
    X, y, domain = problem()
    arguments = dict(X=X, y=y, sample_domain=domain, methods=["constant"]) | change
    if words is None:
        evaluate(**arguments)
        return
    with pytest.raises(ValueError, match=words):
        evaluate(**arguments)


def test_training_rows_with_only_one_class_are_refused():
    X, _, domain = problem(3, 10)
    y = (domain == "site 0").astype(int)
    with pytest.raises(
        ValueError, match="with 'site 0' held out, the training rows have only one class"
    ):
        evaluate(X, y, domain, methods=["constant"])


def test_no_warning_reaches_the_caller(one_width):
    X, y, domain = problem(3, 12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(X, y, domain, methods=["linear", "dcm"])


@pytest.mark.parametrize("unit", [1e-4, 1e4])
def test_support_vector_machines_do_not_depend_on_the_unit_of_the_target(unit):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 3))
    y = X[:, 0] + 0.1 * rng.standard_normal(90)
    domain = np.arange(90) % 3
    options = dict(methods=["constant", "svm", "invariant"], progress=False)
    plain = evaluate(X, y, domain, **options)
    scaled = evaluate(X, unit * y, domain, **options)
    for key in ("svm", "invariant"):
        assert scaled.find(key).mean / unit == pytest.approx(plain.find(key).mean, rel=0.15)


def test_numbers_in_object_columns_are_numeric_and_sparse_input_is_refused():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(rng.standard_normal((60, 2)), columns=["a", "b"]).astype(object)
    y, domain = rng.integers(0, 2, 60), np.arange(60) % 3
    evaluation = evaluate(frame, y, domain, methods=["constant"], progress=False)
    assert evaluation.facts["columns"] == 2
    with pytest.raises(TypeError, match="sparse"):
        evaluate(csr_array(frame.to_numpy(float)), y, domain)


def test_values_whose_squares_overflow_are_refused():
    pandas = pytest.importorskip("pandas")
    X, y, domain = problem()[:3]
    X = X * np.r_[1e300, np.ones(X.shape[1] - 1)]
    with pytest.raises(ValueError, match=r"values beyond 1e\+150.*Rescale X"):
        evaluate(X, y, domain, methods=QUICK, progress=False)
    with pytest.raises(ValueError, match=r"column '0' has values beyond ±1e\+150"):
        evaluate(pandas.DataFrame(X), y, domain, methods=QUICK, progress=False)
