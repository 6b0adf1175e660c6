"""InvariantSVC and InvariantSVR: equal to SVC and SVR with weight 0, and effects of the weight."""

import numpy as np
import pytest
import sklearn
from sklearn.metrics import log_loss
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from domainwise import InvariantFeatures, InvariantKernel, InvariantSVC, InvariantSVR
from domainwise.selection import LeaveDomainsOut

GAMMA = 0.25


def problem(seed=0, n=120, p=3, n_domains=4, n_classes=2):
    rng = np.random.default_rng(seed)
    d = np.arange(n) % n_domains
    y = rng.integers(0, n_classes, size=n)
    X = rng.normal(size=(n, p)) + rng.normal(size=(n_domains, p))[d]
    return X + 1.5 * rng.normal(size=(n_classes, p))[y], y, d


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


# Weight 0 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_weight_zero_has_the_decision_values_of_svc(n_classes, class_weight):
    X, y, d = problem(n_classes=n_classes)
    new = np.random.default_rng(1).normal(size=(30, 3))
    arguments = dict(C=3.0, gamma=GAMMA, class_weight=class_weight, tol=1e-8)
    model = InvariantSVC(domain_weight=0, **arguments).fit(X, y, sample_domain=d)
    reference = SVC(**arguments).fit(X, y)
    np.testing.assert_allclose(
        model.decision_function(new), reference.decision_function(new), atol=1e-5
    )
    np.testing.assert_array_equal(model.predict(new), reference.predict(new))


@pytest.mark.parametrize("domains", [None, np.zeros(120, dtype=int)])
@pytest.mark.parametrize("conditional", [False, True])
def test_one_domain_or_none_equals_svc(domains, conditional):
    X, y, _ = problem()
    model = InvariantSVC(gamma=GAMMA, domain_weight=7.0, conditional=conditional, tol=1e-8)
    model.fit(X, y, sample_domain=domains)
    reference = SVC(gamma=GAMMA, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(
        model.decision_function(X), reference.decision_function(X), atol=1e-5
    )


def test_weight_zero_equals_svr():
    X, y, d = problem()
    target = 30 + y + X[:, 0]
    model = InvariantSVR(2.0, 0.05, gamma=GAMMA, domain_weight=0, tol=1e-8)
    model.fit(X, target, sample_domain=d)
    reference = SVR(C=2.0, epsilon=0.05, gamma=GAMMA, tol=1e-8).fit(X, target)
    np.testing.assert_allclose(model.predict(X), reference.predict(X), atol=1e-5)


def test_a_precomputed_kernel_gives_the_same_svm():
    X, y, d = problem()
    rows = InvariantSVC(gamma=GAMMA, tol=1e-8).fit(X, y, sample_domain=d)
    precomputed = InvariantSVC(kernel="precomputed", tol=1e-8)
    K = rbf_kernel(X, gamma=GAMMA)
    precomputed.fit(K, y, sample_domain=d)
    np.testing.assert_allclose(
        precomputed.decision_function(K), rows.decision_function(X), atol=1e-6
    )


# Domains ------------------------------------------------------------------------------------------


def test_domains_are_separated_less_with_larger_weights():
    X, y, d = problem(n=200)
    spreads = []
    for w in [0, 0.1, 10, np.inf]:
        f = InvariantSVC(domain_weight=w).fit(X, y, sample_domain=d).decision_function(X)
        spreads.append(np.std([f[d == g].mean() for g in range(4)]))
    assert spreads[0] > 0.1
    assert np.all(np.diff(spreads) < 0)
    assert spreads[-1] < 1e-3  # all functions have equal means, regardless of tol


def test_a_feature_that_identifies_the_domain_is_not_used():
    # In source domains, feature 1 reveals the class, because it depends on the domain. Feature 0
    # predicts the class in all domains.
    rng = np.random.default_rng(0)
    d = np.repeat([0, 1, 2, 3], 60)
    y = (rng.random(240) < np.array([0.1, 0.9, 0.1, 0.9])[d]).astype(int)
    X = np.c_[rng.normal(size=240) + 1.6 * y, 3.0 * (d % 2) + rng.normal(size=240)]
    y_new = rng.integers(0, 2, size=400)
    new = np.c_[rng.normal(size=400) + 1.6 * y_new, 3.0 * (1 - y_new) + rng.normal(size=400)]
    baseline = InvariantSVC(domain_weight=0).fit(X, y, sample_domain=d).score(new, y_new)
    priced = InvariantSVC(domain_weight=10, conditional=True).fit(X, y, sample_domain=d)
    assert baseline < 0.55
    assert priced.score(new, y_new) > 0.7


@pytest.mark.parametrize("conditional", [False, True])
def test_names_of_domains_and_order_of_rows_do_not_matter(conditional):
    X, y, d = problem(n_classes=3)
    order = np.random.default_rng(0).permutation(120)
    arguments = dict(gamma=GAMMA, conditional=conditional, tol=1e-8)
    model = InvariantSVC(**arguments).fit(X, y, sample_domain=d)
    refitted = InvariantSVC(**arguments)
    refitted.fit(X[order], y[order], sample_domain=np.array(list("zyxw"))[d][order])
    np.testing.assert_allclose(refitted.decision_function(X), model.decision_function(X), atol=1e-5)


@pytest.mark.parametrize("conditional", [False, True])
def test_a_domain_with_one_row_and_a_class_absent_from_a_domain(conditional):
    X, y, d = problem(n_classes=3)
    d[0] = 9
    y[d == 1] = np.where(y[d == 1] == 2, 0, y[d == 1])
    model = InvariantSVC(conditional=conditional).fit(X, y, sample_domain=d)
    assert np.isfinite(model.decision_function(X)).all()
    np.testing.assert_array_equal(model.domains_, [0, 1, 2, 3, 9])


def test_one_row_at_a_time_and_small_batches_equal_many(monkeypatch):
    X, y, d = problem()
    model = InvariantSVC().fit(X, y, sample_domain=d)
    many = model.decision_function(X)
    one = np.concatenate([model.decision_function(row[None]) for row in X])
    np.testing.assert_allclose(one, many, rtol=1e-9, atol=1e-12)
    with sklearn.config_context(working_memory=0.001):
        np.testing.assert_allclose(model.decision_function(X), many, rtol=1e-9, atol=1e-12)


def test_float32_and_strings_as_classes():
    X, y, d = problem()
    names = np.array(["clutter", "mine"])[y]
    double = InvariantSVC(gamma=GAMMA).fit(X, names, sample_domain=d)
    single = InvariantSVC(gamma=GAMMA).fit(X.astype(np.float32), names, sample_domain=d)
    np.testing.assert_allclose(
        single.decision_function(X.astype(np.float32)), double.decision_function(X), atol=1e-2
    )
    np.testing.assert_array_equal(double.classes_, ["clutter", "mine"])
    assert set(double.predict(X)) <= {"clutter", "mine"}


# Many rows ----------------------------------------------------------------------------------------


def test_auto_is_fast_with_many_rows(monkeypatch):
    X, y, d = problem(n=300)
    assert InvariantSVC().fit(X, y, sample_domain=d).solver_info_["solver"] == "exact"
    monkeypatch.setattr("domainwise.estimators.invariant.machines.EXACT_ROWS", 200)
    assert InvariantSVC().fit(X, y, sample_domain=d).solver_info_["solver"] == "fast"
    exact = InvariantSVC(solver="exact").fit(X, y, sample_domain=d)
    assert exact.solver_info_["solver"] == "exact"


@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_fast_classifier_agrees_with_the_exact_one(n_classes):
    X, y, d = problem(n=400, n_classes=n_classes)
    exact = InvariantSVC(solver="exact", domain_weight=0.1).fit(X, y, sample_domain=d)
    fast = InvariantSVC(solver="fast", domain_weight=0.1).fit(X, y, sample_domain=d)
    assert np.mean(exact.predict(X) == fast.predict(X)) > 0.93
    assert fast.decision_function(X).shape == exact.decision_function(X).shape
    refitted = InvariantSVC(solver="fast", domain_weight=0.1).fit(X, y, sample_domain=d)
    np.testing.assert_array_equal(fast.decision_function(X), refitted.decision_function(X))


def test_the_fast_regression_agrees_with_the_exact_one():
    X, _, d = problem(n=400)
    target = 50 + 3 * np.sin(X[:, 0]) + X[:, 1]
    new = X + 0.1
    exact = InvariantSVR(10, solver="exact", domain_weight=0.01).fit(X, target, sample_domain=d)
    fast = InvariantSVR(10, solver="fast", domain_weight=0.01).fit(X, target, sample_domain=d)
    assert np.corrcoef(exact.predict(new), fast.predict(new))[0, 1] > 0.98
    assert fast.predict(X).mean() == pytest.approx(target.mean(), abs=0.1)


# Probabilities ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 4])
def test_probabilities_are_calibrated_on_held_out_domains(n_classes):
    X, y, d = problem(n=240, n_classes=n_classes)
    model = InvariantSVC(probability=True, domain_weight=0.1).fit(X, y, sample_domain=d)
    P = model.predict_proba(X)
    assert P.shape == (240, n_classes)
    np.testing.assert_allclose(P.sum(axis=1), 1)
    assert np.mean(model.classes_[P.argmax(axis=1)] == y) > 0.6
    refitted = InvariantSVC(probability=True, domain_weight=0.1).fit(X, y, sample_domain=d)
    np.testing.assert_array_equal(refitted.predict_proba(X), P)


@pytest.mark.filterwarnings("ignore:Probabilities were calibrated", "ignore:The least populated")
@pytest.mark.parametrize("n_rows", [1, 2])
def test_a_class_that_is_missing_from_folds_of_rows_has_a_probability(n_rows):
    X, y, d = problem()
    y[:n_rows] = 7
    model = InvariantSVC(probability=True).fit(X, y, sample_domain=d)
    P = model.predict_proba(X)
    np.testing.assert_allclose(P.sum(axis=1), 1)
    assert 0 < P[:, 2].mean() < 0.1


def test_probabilities_are_better_on_unseen_domains_than_those_of_random_folds():
    # Each domain shifts the classes, and a feature identifies it, so random folds are too easy.
    rng = np.random.default_rng(0)

    def rows(n_domains):
        d = np.arange(40 * n_domains) % n_domains
        y = rng.integers(0, 2, size=len(d))
        shift, mark = 1.5 * rng.normal(size=n_domains), 3.0 * rng.normal(size=n_domains)
        return np.c_[2 * y + shift[d] + 0.4 * rng.normal(size=len(d)), mark[d]], y, d

    X, y, d = rows(8)
    new, y_new, _ = rows(30)
    model = InvariantSVC(10, domain_weight=0, probability=True)
    by_domain = log_loss(y_new, model.fit(X, y, sample_domain=d).predict_proba(new))
    with pytest.warns(UserWarning, match="calibrated on stratified folds of rows instead"):
        by_rows = log_loss(y_new, model.fit(X, y).predict_proba(new))
    assert by_domain < np.log(2)
    assert by_rows > 1.2 * by_domain


def test_predict_proba_requires_probability_true():
    X, y, d = problem()
    model = InvariantSVC().fit(X, y, sample_domain=d)
    assert not hasattr(model, "predict_proba")


def test_a_class_in_one_domain_only_is_calibrated_on_stratified_folds_with_a_warning():
    X, y, d = problem(n_classes=3)
    y[(y == 2) & (d != 0)] = 0
    with pytest.warns(UserWarning, match="a class occurs in only one group of domains"):
        model = InvariantSVC(probability=True).fit(X, y, sample_domain=d)
    assert model.predict_proba(X).shape == (120, 3)


# Routing and searches -----------------------------------------------------------------------------


def test_sample_domain_reaches_the_machine_through_a_pipeline_and_cross_validation(routing):
    X, y, d = problem()
    pipeline = make_pipeline(StandardScaler(), InvariantSVC())
    pipeline.fit(X, y, sample_domain=d)
    np.testing.assert_array_equal(pipeline[-1].domains_, [0, 1, 2, 3])
    scores = cross_val_score(pipeline, X, y, cv=LeaveDomainsOut(), params={"sample_domain": d})
    assert scores.shape == (4,)


@pytest.mark.parametrize("machine", [InvariantSVC, InvariantSVR])
def test_a_grid_search_holds_out_one_domain_at_a_time(routing, machine):
    X, y, d = problem()
    grid = {"domain_weight": [0, 1.0], "C": [1.0, 10.0], "gamma": ["median"]}
    if machine is InvariantSVC:
        grid["conditional"] = [False, True]
    search = GridSearchCV(machine(), grid, cv=LeaveDomainsOut(), error_score="raise")
    search.fit(X, y, sample_domain=d)
    assert search.n_splits_ == 4
    np.testing.assert_array_equal(search.best_estimator_.domains_, [0, 1, 2, 3])


# Bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(C=0), "C"),
        (dict(solver="dense"), "solver"),
        (dict(class_weight="even"), "class_weight"),
        (dict(domain_weight=-0.1), "domain_weight"),
        (dict(kernel="precomputed", solver="fast"), "chooses landmarks from rows"),
    ],
)
def test_errors_name_invalid_arguments_of_the_classifier(arguments, message):
    X, y, d = problem()
    with pytest.raises(ValueError, match=message):
        InvariantSVC(**arguments).fit(X @ X.T, y, sample_domain=d)


def test_errors_name_invalid_targets_and_domains():
    X, y, d = problem()
    with pytest.raises(ValueError, match="only one class"):
        InvariantSVC().fit(X, np.zeros(120), sample_domain=d)
    with pytest.raises(ValueError, match="Unknown label type"):
        InvariantSVC().fit(X, X[:, 0], sample_domain=d)
    with pytest.raises(ValueError, match="sample_domain has 60 entries, but X has 120 rows"):
        InvariantSVC().fit(X, y, sample_domain=d[:60])
    with pytest.raises(ValueError, match="conditional=True compares domains within classes"):
        InvariantSVR(conditional=True).fit(X, X[:, 0], sample_domain=d)
    with pytest.raises(ValueError, match="epsilon"):
        InvariantSVR(epsilon=-1).fit(X, X[:, 0], sample_domain=d)


@pytest.mark.torch
@pytest.mark.parametrize("model", [InvariantKernel(), InvariantSVC(), InvariantSVR()])
def test_tensors_are_errors_except_in_invariant_features(model):
    torch = pytest.importorskip("torch")
    X, y, d = problem()
    with pytest.raises(TypeError, match="Use InvariantFeatures, which supports them"):
        model.fit(torch.from_numpy(X), y, sample_domain=d)
    features = InvariantFeatures(30, random_state=0)
    Z = features.fit_transform(torch.from_numpy(X), sample_domain=torch.from_numpy(d))
    assert isinstance(Z, torch.Tensor)
    expected = InvariantFeatures(30, random_state=0).fit_transform(X, sample_domain=d)
    np.testing.assert_allclose(Z.numpy(), expected, atol=1e-9)
