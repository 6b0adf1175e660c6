"""InvariantRidgeCV and InvariantRidgeClassifierCV equal dense kernel ridge regression."""

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import LeavePGroupsOut, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight

from domainwise import InvariantKernel, InvariantRidgeClassifierCV, InvariantRidgeCV
from domainwise.base.inputs import Labels
from domainwise.datasets import make_synthetic
from domainwise.estimators.ridge import base as ridge_search
from domainwise.estimators.ridge.scores import Rows
from domainwise.held_out.calibration.curves import class_columns, fit_curve
from domainwise.selection import LeaveDomainsOut

SMALL = {"gammas": [0.05, 0.3], "alphas": [0.1, 3.0], "domain_weights": [0.0, 2.0]}


@pytest.fixture(scope="module")
def data():
    return make_synthetic(n_domains=5, n_per_domain=30, n_features=4, random_state=0)


@pytest.fixture(scope="module")
def classes(data):
    """Return data with three classes."""
    return np.array(["a", "b", "c"])[np.digitize(data.data[:, 0] * data.target, [-0.5, 0.5])]


def dense(X, Y, weights, d, X_new, point, y=None):
    """Solve kernel ridge regression with the invariant kernel and an intercept densely."""
    kernel = InvariantKernel(
        kernel=point["kernel"],
        gamma=point["gamma"],
        domain_weight=point["domain_weight"],
        conditional=point["conditional"],
    )
    K = kernel.fit_transform(X, y, sample_domain=d)
    n = len(X)
    A = np.ones((n + 1, n + 1))
    A[:n, :n] = K + np.diag(point["alpha"] / weights)
    A[n, n] = 0.0
    solution = np.linalg.solve(A, np.vstack([Y, np.zeros((1, Y.shape[1]))]))
    return kernel.transform(X_new) @ solution[:n] + solution[n]


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize(
    ("kernel", "weight", "conditional"),
    [("rbf", 0.0, False), ("rbf", 2.0, False), ("laplacian", 30.0, True), ("linear", 1.0, True)],
)
def test_one_member_is_kernel_ridge_with_the_invariant_kernel(
    data, classes, kernel, weight, conditional, class_weight
):
    model = InvariantRidgeClassifierCV(
        kernels=[kernel],
        gammas=[0.2],
        alphas=[0.5],
        domain_weights=[weight],
        conditionals=[conditional],
        class_weight=class_weight,
        n_average=1,
    ).fit(data.data, classes, sample_domain=data.sample_domain)
    counts = np.unique(classes, return_inverse=True, return_counts=True)
    weights = np.ones(len(classes))
    if class_weight:
        weights = (len(classes) / (3 * counts[2]))[counts[1]]
    Y = np.where(classes[:, None] == model.classes_, 1.0, -1.0)
    new = data.data[:20] + 0.1
    expected = dense(data.data, Y, weights, data.sample_domain, new, model.members_[0], y=classes)
    np.testing.assert_allclose(model.decision_function(new), expected, atol=1e-8)
    logits = model.curve_.slope * expected + model.curve_.bias
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(new), p, atol=1e-8)
    domains = data.sample_domain
    shares = [(Y[domains == domain] > 0).mean(axis=0) for domain in np.unique(domains)]
    for decision, ratios in (("argmax", p), ("balanced", p / np.mean(shares, axis=0))):
        model.decide(decision)
        np.testing.assert_array_equal(model.predict(new), model.classes_[ratios.argmax(axis=1)])


def test_members_are_averaged(data):
    y = data.data[:, 0] ** 2
    X = data.data[:, 1:]
    model = InvariantRidgeCV(**SMALL, n_average=4).fit(X, y, sample_domain=data.sample_domain)
    assert len(model.members_) == 4
    each = [
        dense(X, y[:, None], np.ones(len(X)), data.sample_domain, X[:9], member)
        for member in model.members_
    ]
    np.testing.assert_allclose(model.predict(X[:9]), np.mean(each, axis=0)[:, 0], atol=1e-8)
    kinds = {(m["kernel"], m["gamma"], m["domain_weight"]) for m in model.members_}
    assert len(kinds) == 4, "one alpha for each kernel and weight"


def test_members_are_the_best_candidates_of_their_kernel_and_penalty(data):
    model = InvariantRidgeClassifierCV(**SMALL, n_average=3)
    model.fit(data.data, data.target, sample_domain=data.sample_domain)
    results = model.cv_results_
    assert len(results["params"]) == 2 * 2 * 3 * 2
    scores = {str(p): s for p, s in zip(results["params"], results["mean_test_score"], strict=True)}
    chosen = [scores[str(member)] for member in model.members_]
    assert chosen == sorted(chosen, reverse=True)
    assert chosen[0] == model.best_score_ == max(scores.values())


@pytest.mark.parametrize("scoring", [None, "balanced_accuracy"])
def test_scores_equal_those_of_fits_to_the_other_domains(data, classes, scoring):
    model = InvariantRidgeClassifierCV(**SMALL, kernels=["rbf"], scoring=scoring)
    model.fit(data.data, classes, sample_domain=data.sample_domain)
    point = model.cv_results_["params"][-1]
    assert point["conditional"]
    scores = []
    Y = np.where(classes[:, None] == model.classes_, 1.0, -1.0)
    domains = data.sample_domain
    shares = np.mean([(Y[domains == d] > 0).mean(axis=0) for d in np.unique(domains)], axis=0)
    for train, test in LeaveDomainsOut().split(data.data, classes, data.sample_domain):
        values = dense(
            data.data[train],
            Y[train],
            np.ones(len(train)),
            data.sample_domain[train],
            data.data[test],
            point,
            y=classes[train],
        )
        if scoring is None:
            scores.append(-((values - Y[test]) ** 2).mean())
        else:
            ratios = np.clip((1 + values) / 2, 1e-6, None) / shares
            predicted = model.classes_[ratios.argmax(axis=1)]
            scores.append(balanced_accuracy_score(classes[test], predicted))
    assert model.cv_results_["mean_test_score"][-1] == pytest.approx(np.mean(scores))


def test_other_scorers_see_classes_and_decision_values(data):
    for scoring in ("roc_auc", "accuracy"):
        model = InvariantRidgeClassifierCV(**SMALL, scoring=scoring)
        model.fit(data.data, data.target, sample_domain=data.sample_domain)
        assert 0.4 < model.best_score_ <= 1.0
    assert model.decision_function(data.data).shape == (len(data.data),)


def test_landmarks_come_close_to_all_rows(data):
    def values(n_landmarks):
        model = InvariantRidgeClassifierCV(**SMALL, n_landmarks=n_landmarks)
        model.fit(data.data, data.target, sample_domain=data.sample_domain)
        return model.decision_function(data.data)

    exact = values(len(data.data))
    errors = [np.abs(values(m) - exact).mean() for m in (0.2, 0.8)]
    assert errors[1] < errors[0] < np.abs(exact).mean()


def test_results_do_not_depend_on_workers_row_order_or_refitting(data):
    model = InvariantRidgeClassifierCV(**SMALL)
    first = clone(model).fit(data.data, data.target, sample_domain=data.sample_domain)
    again = clone(model).set_params(n_jobs=2)
    again.fit(data.data, data.target, sample_domain=data.sample_domain)
    np.testing.assert_allclose(
        first.decision_function(data.data), again.decision_function(data.data), rtol=1e-12
    )
    order = np.random.default_rng(0).permutation(len(data.data))
    mixed = clone(model).fit(
        data.data[order], data.target[order], sample_domain=data.sample_domain[order]
    )
    np.testing.assert_allclose(
        first.decision_function(data.data), mixed.decision_function(data.data), atol=1e-8
    )


def test_without_domains_there_is_no_weight_to_choose(data):
    model = InvariantRidgeClassifierCV(**SMALL)
    with pytest.warns(UserWarning, match="no domain to hold out"):
        model.fit(data.data, data.target)
    assert {p["domain_weight"] for p in model.cv_results_["params"]} == {0.0}
    two = data.sample_domain % 2  # if one is held out, only one remains
    model.fit(data.data, data.target, sample_domain=two)
    assert {p["domain_weight"] for p in model.cv_results_["params"]} == {0.0, 2.0}


def test_descriptors_of_domains_several_targets_and_float32(data):
    X = data.data.astype(np.float32)
    Y = data.data[:, :2]
    model = InvariantRidgeCV(**SMALL, cv=3)
    model.fit(X, Y, sample_domain=data.sample_domain[:, None] + 0.5)
    assert model.domains_ is None
    assert model.predict(X).shape == Y.shape


def test_domains_are_routed(data):
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), InvariantRidgeClassifierCV(**SMALL))
        found = cross_validate(
            pipeline,
            data.data,
            data.target,
            cv=LeaveDomainsOut(),
            params={"sample_domain": data.sample_domain},
            return_estimator=True,
        )
    assert all(len(model[-1].domains_) == 4 for model in found["estimator"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kernels": ["rbf", "gauss"]}, "'kernels' .* a str among .*'gauss'"),
        ({"kernels": []}, "'kernels' .* Got \\[\\]"),
        ({"alphas": [1.0, 0.0]}, "'alphas' .* each value is a float in the range .0.0, inf"),
        ({"alphas": []}, "'alphas' .* Got .."),
        ({"gammas": [-1.0]}, "'gammas' .* Got .-1.0."),
        ({"domain_weights": [-1.0]}, "'domain_weights' .* Got .-1.0."),
        ({"domain_weights": [np.inf]}, "'domain_weights' .* Got .inf."),
        ({"n_average": 0}, "n_average"),
        ({"n_landmarks": 10_000}, "more than the"),
    ],
)
def test_bad_arguments_are_named(data, arguments, message):
    with pytest.raises(ValueError, match=message):
        InvariantRidgeClassifierCV(**arguments).fit(
            data.data, data.target, sample_domain=data.sample_domain
        )


def test_bad_data_are_named(data):
    X, y, d = data.data, data.target, data.sample_domain
    with pytest.raises(ValueError, match="one class"):
        InvariantRidgeClassifierCV().fit(X, np.ones(len(y)), sample_domain=d)
    with pytest.raises(ValueError, match="sample_domain has"):
        InvariantRidgeClassifierCV().fit(X, y, sample_domain=d[:-1])
    with pytest.raises(ValueError, match="NaN"):
        InvariantRidgeCV().fit(np.full_like(X, np.nan), y, sample_domain=d)


# ---- probabilities -----------------------------------------------------------------------------

FEW = dict(kernels=["rbf"], gammas=[0.05, 0.2], alphas=[0.1, 1.0], n_average=3)


def three_classes(n_domains=5, n=24, seed=0):
    rng = np.random.default_rng(seed)
    domains = np.repeat(np.arange(n_domains), n)
    y = rng.integers(3, size=len(domains))
    X = rng.standard_normal((len(domains), 3)) + 1.5 * np.eye(3)[y]
    return X + 0.3 * rng.standard_normal((n_domains, 3))[domains], y, domains


@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_come_from_values_of_models_fitted_without_the_domain(n_classes):
    X, y, domains = three_classes()
    y = np.minimum(y, n_classes - 1)
    options = dict(kernels=["rbf"], gammas=[0.1], alphas=[1.0], domain_weights=[1.0])
    one = dict(options, conditionals=[False], n_average=1, landmarks=X)
    model = InvariantRidgeClassifierCV(**one).fit(X, y, sample_domain=domains)
    values = np.zeros((len(X), n_classes))
    for left_out in range(5):
        rest = domains != left_out
        without = InvariantRidgeClassifierCV(**one)
        without.fit(X[rest], y[rest], sample_domain=domains[rest])
        values[~rest] = class_columns(without.decision_function(X[~rest]))
    curve, _ = fit_curve(values, y, np.ones(len(y)))
    expected = curve.probabilities(class_columns(model.decision_function(X)))
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-6)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


def test_permuting_classes_permutes_columns_of_probabilities():
    X, y, domains = three_classes()
    order = np.array([2, 0, 1])
    p = InvariantRidgeClassifierCV(**FEW).fit(X, y, sample_domain=domains).predict_proba(X)
    other = InvariantRidgeClassifierCV(**FEW).fit(X, order[y], sample_domain=domains)
    np.testing.assert_allclose(other.predict_proba(X)[:, order], p, atol=1e-7)
    two = y > 0
    p = InvariantRidgeClassifierCV(**FEW).fit(X, two, sample_domain=domains).predict_proba(X)
    other = InvariantRidgeClassifierCV(**FEW).fit(X, ~two, sample_domain=domains)
    np.testing.assert_allclose(other.predict_proba(X)[:, ::-1], p, atol=1e-7)


def test_uninformative_values_give_the_base_rate_with_equal_weights_of_domains():
    X, y, domains = three_classes()
    two = (y > 0).astype(int)
    two[domains == 4] = 1
    told = y + 0
    told[domains == 0] = 0
    X = np.ones_like(X)
    flat = InvariantRidgeClassifierCV(kernels=["rbf"], gammas=[1.0], alphas=[1.0])
    flat.fit(X, two, sample_domain=domains)
    rate = np.mean([two[domains == d].mean() for d in range(5)])
    np.testing.assert_allclose(flat.predict_proba(X)[:, 1], rate, atol=0.01)
    rates = np.mean([np.eye(3)[told[domains == d]].mean(axis=0) for d in range(5)], axis=0)
    flat.fit(X, told, sample_domain=domains)
    np.testing.assert_allclose(flat.predict_proba(X[:1]), [rates], atol=0.01)
    balanced = clone(flat).set_params(class_weight="balanced")
    balanced.fit(X, (y > 0).astype(int), sample_domain=domains)
    rate = np.mean([(y > 0)[domains == d].mean() for d in range(5)])
    np.testing.assert_allclose(balanced.predict_proba(X)[:, 1], rate, atol=0.01)


def test_a_domain_with_one_class_does_not_change_the_confidence_of_probabilities():
    X, y, domains = three_classes(n_domains=8, n=40)
    two = (y > 0).astype(int)
    kept = (domains < 7) | (two == 1)
    whole = InvariantRidgeClassifierCV(**FEW).fit(
        X[domains < 7], two[domains < 7], domains[domains < 7]
    )
    added = InvariantRidgeClassifierCV(**FEW).fit(X[kept], two[kept], sample_domain=domains[kept])
    p = added.predict_proba(X)
    assert np.isfinite(p).all()
    assert np.corrcoef(p[:, 1], whole.predict_proba(X)[:, 1])[0, 1] > 0.98
    assert abs(added.curve_.slope / whole.curve_.slope - 1) < 0.3


def test_many_rows_are_calibrated_on_some_of_them(monkeypatch):
    X, y, domains = three_classes(n_domains=6, n=60)
    whole = InvariantRidgeClassifierCV(**FEW, landmarks=X[::6]).fit(X, y, sample_domain=domains)
    monkeypatch.setattr(ridge_search, "MAX_HELD_OUT_ROWS", 120)
    part = InvariantRidgeClassifierCV(**FEW, landmarks=X[::6]).fit(X, y, sample_domain=domains)
    np.testing.assert_allclose(part.decision_function(X), whole.decision_function(X), atol=1e-6)
    np.testing.assert_allclose(part.predict_proba(X), whole.predict_proba(X), atol=0.15)
    splits = list(LeaveDomainsOut().split(X, y, domains))
    rows = InvariantRidgeClassifierCV(**FEW, landmarks=X[::6], cv=iter(splits))
    rows.fit(X, y, sample_domain=domains)
    np.testing.assert_allclose(rows.predict_proba(X), part.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("classes", [True, False])
def test_held_out_predictions_are_those_of_members_fitted_without_the_domain(classes):
    X, y, domains = three_classes()
    y = y if classes else X[:, 0] ** 2 + 1e3
    kind = InvariantRidgeClassifierCV if classes else InvariantRidgeCV
    model = kind(**FEW, landmarks=X[::4]).fit(X, y, sample_domain=domains)
    held_out = model.held_out_
    np.testing.assert_array_equal(model.domains_[held_out.domain], domains)
    np.testing.assert_array_equal(model.classes_[held_out.y] if classes else held_out.y, y)
    for domain in model.domains_:
        test = domains == domain
        part = clone(model)
        part.fit_candidates(X[~test], y[~test], domains[~test], candidates=model.members_)
        if classes:
            expected = model.curve_.probabilities(part.decision_function(X[test]))
        else:
            expected = part.predict(X[test])[:, None]
        np.testing.assert_allclose(held_out.plain[test], expected, atol=1e-5)


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("repeated", [False, True])
def test_values_on_all_splits_from_one_pass_are_those_of_dense_solutions(
    data, classes, class_weight, repeated
):
    X, d = data.data, data.sample_domain
    names, codes = np.unique(classes, return_inverse=True)
    Y = 2.0 * np.eye(3)[codes] - 1.0
    labels = Labels(codes=codes, names=names)
    domain = Labels(codes=np.unique(d, return_inverse=True)[1], names=np.unique(d))
    splits = list(LeavePGroupsOut(2 if repeated else 1).split(X, codes, d))[:5]
    candidates = [
        {"kernel": "rbf", "gamma": 0.2, "domain_weight": w, "conditional": c, "alpha": alpha}
        for w, c in [(0.0, False), (2.0, False), (2.0, True)]
        for alpha in (0.5, 3.0)
    ]
    model = InvariantRidgeClassifierCV(class_weight=class_weight)
    values = model.candidate_values(Rows(X, labels, domain), candidates, splits, X)
    assert [len(of_one) for of_one in values] == [len(splits)] * len(candidates)
    for candidate, of_one in zip(candidates, values, strict=True):
        for (train, test), found in zip(splits, of_one, strict=True):
            weights = compute_sample_weight(class_weight, classes[train])
            expected = dense(
                X[train], Y[train], weights, d[train], X[test], candidate, classes[train]
            )
            np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_fit_from_sums_has_no_probabilities():
    X, y, domains = three_classes()
    model = InvariantRidgeClassifierCV(**FEW)
    assert hasattr(model, "predict_proba")
    assert not hasattr(model.partial_fit(X, y, sample_domain=domains), "predict_proba")
    assert model.predict(X).shape == y.shape
    assert hasattr(model.fit(X, y, sample_domain=domains), "predict_proba")
