"""partial_fit of the ridge searches: batches in any order and size, and refused input."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import KFold

from domainwise import InvariantRidgeClassifierCV, InvariantRidgeCV, load, save
from domainwise.selection import LeaveDomainsOut

GRID = {"gammas": [0.1, 0.4], "alphas": [0.1, 2.0], "domain_weights": [0.0, 3.0], "n_average": 4}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    d = rng.integers(6, size=240)
    X = rng.standard_normal((240, 3)) + 0.3 * d[:, None]
    t = np.sin(X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.3 * rng.standard_normal(240)
    return X, np.array(["no", "yes", "maybe"])[np.digitize(t, [0.4, 1.4])], t, d


def added(model, X, y, d, batches):
    for batch in batches:
        model.partial_fit(X[batch], y[batch], sample_domain=d[batch])
    return model


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("seed", [0, 1])
def test_batches_in_any_order_and_size_equal_one_fit(rows, class_weight, seed):
    X, y, _, d = rows
    model = InvariantRidgeClassifierCV(landmarks=X[::6], class_weight=class_weight, **GRID)
    whole = clone(model).fit(X, y, sample_domain=d)
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.choice(np.arange(1, 240), 9, replace=False))
    parts = added(clone(model), X, y, d, np.split(rng.permutation(240), cuts))
    np.testing.assert_array_equal(parts.classes_, whole.classes_)
    np.testing.assert_array_equal(parts.domains_, whole.domains_)
    assert parts.finalize().members_ == whole.members_
    for i in range(whole.n_splits_):
        name = f"split{i}_test_score"
        np.testing.assert_allclose(parts.cv_results_[name], whole.cv_results_[name], rtol=1e-9)
    np.testing.assert_allclose(parts.decision_function(X), whole.decision_function(X), atol=1e-9)


def test_continuous_targets_can_be_passed_in_batches(rows):
    X, _, t, d = rows
    Y = np.column_stack([t, t**2]) + 1e5
    model = InvariantRidgeCV(landmarks=X[::6], cv=LeaveDomainsOut(2), **GRID)
    whole = clone(model).fit(X, Y, sample_domain=d)
    parts = added(clone(model), X, Y, d, np.split(np.arange(240), 5))
    np.testing.assert_allclose(parts.predict(X), whole.predict(X), rtol=1e-9)


def test_the_first_batch_chooses_landmarks_and_gammas(rows):
    X, y, _, d = rows
    model = InvariantRidgeClassifierCV(n_landmarks=20, domain_weights=[0.0], alphas=[1.0])
    model.partial_fit(X[:100], y[:100], sample_domain=d[:100])
    first = {(p["kernel"], p["gamma"]) for p in model.finalize().cv_results_["params"]}
    model.partial_fit(3 * X[100:], y[100:], sample_domain=d[100:]).finalize()
    assert {(p["kernel"], p["gamma"]) for p in model.cv_results_["params"]} == first
    assert all((np.isin(f.landmarks[:, 0], X[:100, 0])).all() for f in model.expansions_)


def test_new_domains_and_classes_may_occur_in_later_batches(rows):
    X, y, _, d = rows
    order = np.lexsort([d, y])
    model = InvariantRidgeClassifierCV(landmarks=X[::6], **GRID)
    model.partial_fit(X[order[:5]], y[order[:5]], sample_domain=d[order[:5]])
    with pytest.raises(ValueError, match="The data contain only one"):
        model.predict(X)
    added(model, X, y, d, np.split(order[5:], [40, 41, 90]))
    whole = clone(model).fit(X, y, sample_domain=d)
    np.testing.assert_allclose(model.decision_function(X), whole.decision_function(X), atol=1e-9)


def test_search_attributes_exist_after_the_search(rows, monkeypatch):
    X, y, _, d = rows
    model = InvariantRidgeClassifierCV(landmarks=X[::6], **GRID).partial_fit(X[:9], y[:9], d[:9])
    with monkeypatch.context() as patch:
        patch.setattr(InvariantRidgeClassifierCV, "_search_sums", None)
        assert not hasattr(model, "members_")
        assert not hasattr(model, "cv_results_")
        with pytest.raises(AttributeError, match="after partial_fit, call finalize or predict"):
            model.expansions_  # noqa: B018
        assert model.classes_.tolist() == sorted(set(y[:9]))
        assert model.domains_.tolist() == sorted(set(d[:9]))
    model.predict(X)
    assert len(model.members_) == 4
    assert not hasattr(model.partial_fit(X, y, d), "members_")
    assert model.finalize().held_out_ is None


def test_two_threads_may_request_the_first_prediction(rows):
    X, y, _, d = rows
    model = InvariantRidgeClassifierCV(landmarks=X[::6], **GRID).partial_fit(X, y, d)
    expected = clone(model).partial_fit(X, y, d).decision_function(X)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: model.decision_function(X), range(4)))
    for answer in answers:
        np.testing.assert_allclose(answer, expected, atol=1e-12)


def test_a_refused_batch_changes_nothing(rows):
    X, y, _, d = rows
    model = InvariantRidgeClassifierCV(landmarks=X[::6], **GRID).partial_fit(X, y, d)
    before = model.decision_function(X)
    for bad, message in (
        ((X[:, :2], y, d), "features"),
        ((X, y, d[:-1]), "sample_domain has 239"),
        ((X, y, d.astype(str)), "but numeric labels in earlier batches"),
        ((np.nan * X, y, d), "NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            model.partial_fit(*bad)
    with pytest.raises(ValueError, match="y contains 'maybe', which is not in classes="):
        model.partial_fit(X, y, d, classes=["no", "yes"])
    np.testing.assert_array_equal(model.decision_function(X), before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scoring": "accuracy"}, "scoring='accuracy' requires predictions for rows"),
        ({"cv": KFold(3)}, "splits rows"),
        ({"cv": 3}, "splits rows"),
    ],
)
def test_arguments_that_need_stored_rows_are_refused(rows, arguments, message):
    X, y, _, d = rows
    with pytest.raises(ValueError, match=message):
        InvariantRidgeClassifierCV(**GRID, **arguments).partial_fit(X, y, sample_domain=d)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("scoring", "accuracy", "scoring='accuracy' requires predictions for rows, but partial"),
        ("cv", KFold(2), "splits rows, which partial_fit does not store"),
        ("domain_epsilon", -1.0, "'domain_epsilon' parameter"),
    ],
)
def test_arguments_set_after_a_batch_are_checked_before_the_search(rows, name, value, message):
    X, y, _, d = rows
    model = InvariantRidgeClassifierCV(landmarks=X[::6], **GRID).partial_fit(X, y, d)
    before = model.get_params()[name]
    model.set_params(**{name: value})
    for ask in (
        lambda: model.predict(X),
        lambda: model.finalize(),
        lambda: model.partial_fit(X, y, d),
    ):
        with pytest.raises(ValueError, match=message):
            ask()
    whole = InvariantRidgeClassifierCV(landmarks=X[::6], **GRID).fit(X, y, d)
    model.set_params(**{name: before})
    np.testing.assert_allclose(model.decision_function(X), whole.decision_function(X), atol=1e-9)


def test_arguments_of_the_search_may_be_set_after_a_batch(rows):
    X, _, t, d = rows
    model = InvariantRidgeCV(landmarks=X[::6], **GRID).partial_fit(X, t, sample_domain=d)
    model.set_params(scoring="r2", cv=LeaveDomainsOut(2), alphas=[0.5], n_average=1)
    whole = clone(model).fit(X, t, sample_domain=d)
    assert model.finalize().members_ == whole.members_
    assert model.best_score_ == pytest.approx(whole.best_score_, rel=1e-9)
    np.testing.assert_allclose(model.predict(X), whole.predict(X), rtol=1e-9)


def test_descriptors_of_domains_are_refused(rows):
    X, y, _, d = rows
    with pytest.raises(ValueError, match="continuous descriptors"):
        InvariantRidgeClassifierCV(**GRID).partial_fit(X, y, sample_domain=d + 0.5)


def test_fit_starts_anew(rows):
    X, y, _, d = rows
    model = InvariantRidgeClassifierCV(landmarks=X[::6], **GRID)
    once = clone(model).fit(X, y, sample_domain=d).decision_function(X)
    model.partial_fit(-X, y, sample_domain=d).fit(X, y, sample_domain=d)
    np.testing.assert_array_equal(model.decision_function(X), once)
    assert "_sums" not in vars(model)


def test_a_saved_model_predicts_and_accepts_more_batches(rows, tmp_path):
    pytest.importorskip("skops")
    X, y, _, d = rows
    model = InvariantRidgeClassifierCV(landmarks=X[::6], **GRID)
    added(model, X, y, d, [slice(0, 120)])
    save(model, tmp_path / "half.skops")
    again = load(tmp_path / "half.skops")
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    for one in (model, again):
        one.partial_fit(X[120:], y[120:], sample_domain=d[120:])
    np.testing.assert_allclose(again.decision_function(X), model.decision_function(X), atol=1e-12)


def test_moments_that_do_not_fit_are_refused_with_advice(rows, monkeypatch):
    X, y, _, d = rows
    monkeypatch.setattr("domainwise.algebra.gram.sums.available_memory", lambda *_: 10_000)
    model = InvariantRidgeClassifierCV(n_landmarks=50, **GRID)
    message = "groups of rows, for . kernel.*fewer landmarks .n_landmarks."
    for fit in (model.fit, model.partial_fit):
        with pytest.raises(MemoryError, match=message):
            fit(X, y, sample_domain=d)
