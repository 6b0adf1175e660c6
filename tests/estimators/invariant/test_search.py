"""InvariantSearchCV equals GridSearchCV, with fewer kernel evaluations."""

import numpy as np
import pytest
import sklearn
from joblib import parallel_config
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from domainwise import DCM, InvariantSVC, InvariantSVR
from domainwise.held_out.calibration.curves import fit_curve
from domainwise.selection import InvariantSearchCV, LeaveDomainsOut

GRID = {
    "domain_weight": [0, 0.1, np.inf],
    "conditional": [False, True],
    "C": [1.0, 10.0],
}


def problem(seed=0, n=120, p=3, n_domains=4, n_classes=3):
    rng = np.random.default_rng(seed)
    d = np.arange(n) % n_domains
    y = rng.integers(0, n_classes, size=n)
    X = rng.normal(size=(n, p)) + rng.normal(size=(n_domains, p))[d]
    return X + rng.normal(size=(n_classes, p))[y], y, d


def same_results(path, plain):
    assert path.cv_results_["params"] == plain.cv_results_["params"]
    for key in ("mean_test_score", "std_test_score", "split0_test_score"):
        np.testing.assert_allclose(path.cv_results_[key], plain.cv_results_[key], atol=1e-12)
    np.testing.assert_array_equal(
        path.cv_results_["rank_test_score"], plain.cv_results_["rank_test_score"]
    )
    assert path.best_params_ == plain.best_params_
    assert path.best_index_ == plain.best_index_


@pytest.mark.parametrize("scoring", ["accuracy", "balanced_accuracy"])
def test_results_equal_those_of_a_grid_search(scoring):
    X, y, d = problem(n=80)
    path = InvariantSearchCV(InvariantSVC(), GRID, scoring=scoring).fit(X, y, sample_domain=d)
    with sklearn.config_context(enable_metadata_routing=True):
        reference = GridSearchCV(InvariantSVC(), GRID, scoring=scoring, cv=LeaveDomainsOut())
        reference.fit(X, y, sample_domain=d)
    same_results(path, reference)
    np.testing.assert_array_equal(path.best_estimator_.predict(X), reference.predict(X))
    np.testing.assert_array_equal(path.decision_function(X), reference.decision_function(X))


def test_results_for_regression_in_a_pipeline_equal_those_of_a_grid_search():
    X, _, d = problem()
    target = X[:, 0] + np.sin(X[:, 1])
    pipeline = make_pipeline(StandardScaler(), InvariantSVR(gamma=0.3))
    grid = {
        "standardscaler__with_std": [True, False],
        "invariantsvr__C": [1],
        "invariantsvr__domain_weight": [0, 0.1],
        "invariantsvr__epsilon": [0.01, 0.3],
    }
    path = InvariantSearchCV(pipeline, grid, cv=GroupKFold(3)).fit(X, target, sample_domain=d)
    with sklearn.config_context(enable_metadata_routing=True):
        cv = GroupKFold(3).set_split_request(groups="sample_domain")
        reference = GridSearchCV(pipeline, grid, cv=cv).fit(X, target, sample_domain=d)
    same_results(path, reference)


def test_the_kernel_is_evaluated_once_per_split_and_kernel():
    X, y, d = problem()
    calls = []

    def linear(A, B, scale=1.0):
        calls.append(len(A) * len(B))
        return scale * A @ B.T

    grid = {
        "domain_weight": [0, 0.1, 1],
        "conditional": [False, True],
        "C": [1.0, 10.0],
        "kernel_params": [{"scale": 1.0}, {"scale": 2.0}],
    }
    InvariantSearchCV(InvariantSVC(kernel=linear), grid).fit(X, y, sample_domain=d)
    # 4 splits x 2 kernels of 90 training and 30 held-out rows, and the final fit. Before each
    # fit, at most 200 rows are used to check whether the function is a kernel.
    assert sum(calls) == 8 * (2 * 90 * 90 + 30 * 90) + 2 * 120 * 120


def test_steps_before_the_svm_get_the_domains_that_they_request():
    X, y, d = problem()
    pipeline = make_pipeline(DCM(2), InvariantSVC())
    grid = {"invariantsvc__C": [1, 10]}
    path = InvariantSearchCV(pipeline, grid, scoring="accuracy").fit(X, y, sample_domain=d)
    with sklearn.config_context(enable_metadata_routing=True):
        reference = GridSearchCV(pipeline, grid, cv=LeaveDomainsOut()).fit(X, y, sample_domain=d)
    same_results(path, reference)


def test_candidates_that_are_not_exact_are_fitted_one_by_one():
    X, y, d = problem()
    grid = {"domain_weight": [0, 1.0], "solver": ["exact", "fast"]}
    path = InvariantSearchCV(InvariantSVC(), grid, scoring="accuracy")
    path.fit(X, y, sample_domain=d)
    with sklearn.config_context(enable_metadata_routing=True):
        reference = GridSearchCV(InvariantSVC(), grid, cv=LeaveDomainsOut()).fit(
            X, y, sample_domain=d
        )
    same_results(path, reference)


def test_rows_and_columns_of_a_precomputed_kernel_are_sliced():
    X, y, d = problem()
    grid = {"domain_weight": [0, 1.0], "C": [1, 10]}
    # Rows are sorted for the solver, but those of a matrix are not: it has to be precise.
    rows = InvariantSearchCV(InvariantSVC(kernel="linear", tol=1e-10), grid)
    rows.fit(X, y, sample_domain=d)
    precomputed = InvariantSearchCV(InvariantSVC(kernel="precomputed", tol=1e-10), grid)
    precomputed.fit(X @ X.T, y, sample_domain=d)
    np.testing.assert_allclose(
        precomputed.cv_results_["mean_test_score"], rows.cv_results_["mean_test_score"]
    )


def test_parallel_workers_give_the_same_scores():
    X, y, d = problem()
    grid = {"domain_weight": [0, 1.0], "gamma": [0.1, 1.0]}
    one = InvariantSearchCV(InvariantSVC(), grid).fit(X, y, sample_domain=d)
    with parallel_config("threading"):
        two = InvariantSearchCV(InvariantSVC(), grid, n_jobs=2).fit(X, y, sample_domain=d)
    np.testing.assert_array_equal(
        one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"]
    )


def test_without_domains_rows_are_held_out_with_a_warning():
    X, y, _ = problem()
    with pytest.warns(UserWarning, match="say little about unseen domains"):
        search = InvariantSearchCV(InvariantSVC(), {"C": [1, 10]}).fit(X, y)
    assert search.n_splits_ == 5


def test_errors_name_the_invalid_argument():
    X, y, d = problem()
    with pytest.raises(ValueError, match="must be an InvariantSVC, an InvariantSVR, or a Pipeline"):
        InvariantSearchCV(SVC(), {"C": [1]}).fit(X, y, sample_domain=d)
    with pytest.raises(ValueError, match="domain_weight"):
        InvariantSearchCV(InvariantSVC(), {"domain_weight": [-1]}).fit(X, y, sample_domain=d)
    with pytest.raises(ValueError, match="weight"):
        InvariantSearchCV(InvariantSVC(), {"weight": [1]}).fit(X, y, sample_domain=d)
    search = InvariantSearchCV(InvariantSVC(), {"C": [1]}, scoring="neg_log_loss")
    with pytest.raises(ValueError, match="needs probabilities"):
        search.fit(X, y, sample_domain=d)
    X[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        InvariantSearchCV(InvariantSVC(), {"C": [1]}).fit(X, y, sample_domain=d)


@pytest.mark.parametrize("n_average", [2, 3])
def test_probabilities_of_the_best_candidate_for_each_kernel_are_averaged(n_average):
    X, y, d = problem(n_classes=2)
    grid = {"gamma": [0.05, 0.2, 1.0], "C": [0.1, 1.0], "domain_weight": [1.0]}
    search = InvariantSearchCV(InvariantSVC(), grid, n_average=n_average)
    search.fit(X, y, sample_domain=d)
    assert len(search.members_) == n_average
    assert search.members_[0] == search.best_params_
    assert len({member["gamma"] for member in search.members_}) == n_average
    members = [InvariantSVC(**member).fit(X, y, sample_domain=d) for member in search.members_]
    expected = []
    for member, machine in zip(search.members_, members, strict=True):
        values = np.zeros(len(X))  # of machines that were fitted without the row's domain
        for train, test in LeaveDomainsOut().split(X, y, d):
            one = InvariantSVC(**member).fit(X[train], y[train], sample_domain=d[train])
            values[test] = one.decision_function(X[test])
        curve, _ = fit_curve(np.column_stack([-values, values]), y, np.ones(len(y)))
        values = machine.decision_function(X)
        expected.append(curve.probabilities(np.column_stack([-values, values])))
    np.testing.assert_allclose(search.predict_proba(X), np.mean(expected, axis=0), atol=1e-6)
    threshold = search.decision_threshold_
    np.testing.assert_array_equal(search.predict(X), search.predict_proba(X)[:, 1] >= threshold)


def test_several_members_for_several_classes_and_for_regression():
    X, _, d = problem()
    classes = np.digitize(X[:, 0], [-0.5, 0.5])
    grid = {"gamma": [0.05, 0.2, 1.0], "C": [0.1, 1.0]}
    search = InvariantSearchCV(InvariantSVC(), grid, n_average=3).fit(X, classes, sample_domain=d)
    assert search.decision_function(X).shape == (len(X), 3)
    assert search.score(X, classes) > 0.7
    numbers = InvariantSearchCV(InvariantSVR(), grid, n_average=3).fit(X, X[:, 0], sample_domain=d)
    members = [InvariantSVR(**m).fit(X, X[:, 0], sample_domain=d) for m in numbers.members_]
    np.testing.assert_allclose(numbers.predict(X), np.mean([m.predict(X) for m in members], axis=0))
    assert numbers.score(X, X[:, 0]) > 0.5


@pytest.mark.parametrize("n_average", [0, 1.5])
def test_an_invalid_n_average_is_an_error(n_average):
    X, y, d = problem()
    with pytest.raises(ValueError, match="n_average"):
        InvariantSearchCV(InvariantSVC(), {"C": [1.0]}, n_average=n_average).fit(
            X, y, sample_domain=d
        )
