"""Searches on moments equal dense kernel ridge regression with an explicit kernel matrix."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import recall_score
from sklearn.metrics.pairwise import laplacian_kernel, linear_kernel, rbf_kernel
from sklearn.model_selection import KFold, LeavePGroupsOut, RepeatedKFold
from sklearn.utils.class_weight import compute_sample_weight

from domainwise import InvariantRidgeClassifierCV, InvariantRidgeCV
from domainwise.algebra.backends import backend_of
from domainwise.algebra.gram.nystrom import NystromMap
from domainwise.algebra.gram.sums import CellRows, cells_by_split, joined_cells, sum_cells
from domainwise.algebra.kernels.functions import make_kernel
from domainwise.base.inputs import check_sample_domain
from domainwise.estimators.projections.projection import resolve_landmarks
from domainwise.held_out.folds import split_domains, split_parts
from domainwise.selection import LeaveDomainsOut

KERNELS = {
    "rbf": rbf_kernel,
    "laplacian": laplacian_kernel,
    "linear": lambda X, Y, gamma: linear_kernel(X, Y),
}
EPSILON = 1e-3
GRID = {"gammas": [0.1], "alphas": [0.03, 2.0], "domain_weights": [0.0, 0.5, 20.0]}


def make_rows(n=110, n_domains=5, seed=0):
    """Return rows, three classes, a continuous target and domains of unequal size."""
    rng = np.random.default_rng(seed)
    d = rng.choice(n_domains, n, p=np.arange(1, n_domains + 1) / np.arange(1, n_domains + 1).sum())
    X = rng.standard_normal((n, 3)) + 0.4 * d[:, None]
    t = np.sin(X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.2 * d + 0.3 * rng.standard_normal(n)
    y = np.array(["a", "b", "c"])[np.digitize(t, [0.5, 1.5])]
    return X, y, t, d


def factor(d, y=None):
    """Return a factor of the centred domain kernel, within classes if y is passed."""
    y = np.zeros(len(d)) if y is None else y
    columns = []
    for label in np.unique(y):
        for domain in np.unique(d[y == label]):
            cell = ((y == label) & (d == domain)).astype(float)
            columns.append(cell - cell.sum() / (y == label).sum() * (y == label))
    return np.column_stack(columns)


class Dense:
    """Solve kernel ridge with the invariant kernel of landmark features with N x N matrices."""

    def __init__(self, X, Y, d, y, landmarks, point, weights=None, P=None):
        kernel, n = KERNELS[point["kernel"]], len(X)
        self.features = lambda A: kernel(A, landmarks, gamma=point["gamma"])
        W = kernel(landmarks, landmarks, gamma=point["gamma"])
        self.inverse = np.linalg.pinv(W, rcond=1e-13, hermitian=True)
        G = factor(d, y if point["conditional"] else None)
        if P is None:
            P = G @ np.linalg.solve(G.T @ G + n * EPSILON * np.eye(G.shape[1]), G.T)
        values, V = np.linalg.eigh(P)
        self.F = V[:, values > 1e-10] * np.sqrt(values[values > 1e-10])
        self.X, self.w = X, point["domain_weight"]
        FKF = self.F.T @ self.plain(X, X) @ self.F
        self.middle = self.w * np.linalg.inv(np.eye(len(FKF)) + self.w * FKF)
        weights = np.ones(n) if weights is None else weights
        A = np.ones((n + 1, n + 1))
        A[:n, :n] = self.invariant(X) + np.diag(point["alpha"] / weights)
        A[n, n] = 0.0
        self.solution = np.linalg.solve(A, np.vstack([Y, np.zeros((1, Y.shape[1]))]))

    def plain(self, A, B):
        return self.features(A) @ self.inverse @ self.features(B).T

    def invariant(self, A):
        left, right = self.plain(A, self.X) @ self.F, self.plain(self.X, self.X) @ self.F
        return self.plain(A, self.X) - left @ self.middle @ right.T

    def __call__(self, A):
        return self.invariant(A) @ self.solution[:-1] + self.solution[-1]


def balanced(y):
    names, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    return (len(y) / (len(names) * counts))[codes]


def dense_scores(model, X, Y, y, d, landmarks, class_weight=None, continuous=False):
    """Return the negative MSE of each candidate and fold; classes are not weighted in scores."""
    scores = []
    for train, test in LeaveDomainsOut().split(X, None, d):
        weights = balanced(y[train]) if class_weight else None
        labels = None if continuous else y[train]
        column = []
        for point in model.cv_results_["params"]:
            f = Dense(X[train], Y[train], d[train], labels, landmarks, point, weights)
            squares = ((f(X[test]) - Y[test]) ** 2).mean(axis=1)
            column.append(-squares.mean())
        scores.append(column)
    return np.array(scores).T


def split_scores(model):
    results = model.cv_results_
    return np.column_stack([results[f"split{i}_test_score"] for i in range(model.n_splits_)])


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "linear"])
def test_scores_of_classes_equal_dense_kernel_ridge(kernel, class_weight):
    X, y, _, d = make_rows()
    landmarks = X[::5]
    model = InvariantRidgeClassifierCV(
        kernels=[kernel], landmarks=landmarks, class_weight=class_weight, **GRID
    ).fit(X, y, sample_domain=d)
    Y = np.where(y[:, None] == model.classes_, 1.0, -1.0)
    expected = dense_scores(model, X, Y, y, d, landmarks, class_weight)
    np.testing.assert_allclose(split_scores(model), expected, rtol=1e-8)
    weights = balanced(y) if class_weight else None
    each = [Dense(X, Y, d, y, landmarks, member, weights)(X[:9]) for member in model.members_]
    np.testing.assert_allclose(model.decision_function(X[:9]), np.mean(each, axis=0), atol=1e-8)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_scores_of_numbers_equal_dense_kernel_ridge(offset):
    X, _, t, d = make_rows()
    Y = np.column_stack([t, X[:, 2] ** 2]) + offset
    model = InvariantRidgeCV(kernels=["rbf"], landmarks=X[::4], **GRID).fit(X, Y, sample_domain=d)
    # The dense solution is computed without the offset, in which it would lose all its digits.
    expected = dense_scores(model, X, Y - offset, None, d, X[::4], continuous=True)
    np.testing.assert_allclose(split_scores(model), expected, rtol=1e-8 if not offset else 1e-6)


def test_scorers_get_predictions_for_held_out_rows():
    X, y, _, d = make_rows()
    model = InvariantRidgeClassifierCV(
        kernels=["rbf"], landmarks=X[::3], scoring="balanced_accuracy", **GRID
    ).fit(X, y, sample_domain=d)
    point = model.cv_results_["params"][-1]
    Y = np.where(y[:, None] == model.classes_, 1.0, -1.0)
    shares = np.mean([(Y[d == domain] > 0).mean(axis=0) for domain in np.unique(d)], axis=0)
    for i, (train, test) in enumerate(LeaveDomainsOut().split(X, None, d)):
        values = Dense(X[train], Y[train], d[train], y[train], X[::3], point)(X[test])
        ratios = np.clip((1 + values) / 2, 1e-6, None) / shares
        expected = recall_score(
            y[test],
            model.classes_[ratios.argmax(axis=1)],
            labels=np.unique(y[test]),
            average="macro",
        )
        assert model.cv_results_[f"split{i}_test_score"][-1] == pytest.approx(expected)


ODD = {
    "one row in a domain": lambda y, d: (y, np.where(np.arange(len(d)) == 3, 7, d)),
    "a class in one fold only": lambda y, d: (np.where((y == "a") & (d != 2), "b", y), d),
    "a fold that is all of a class": lambda y, d: (np.where(d == 2, "z", y), d),
    "two domains": lambda y, d: (y, d % 2),
    "a class of one row": lambda y, d: (np.where(np.arange(len(d)) == 5, "q", y), d),
}


@pytest.mark.filterwarnings("ignore:the score is not defined")
@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("odd", ODD)
def test_odd_domains_and_classes_equal_dense_kernel_ridge(odd, class_weight):
    X, y, _, d = make_rows(60)
    y, d = ODD[odd](y, d)
    X[10:20] = X[10]  # duplicates
    model = InvariantRidgeClassifierCV(
        kernels=["rbf"], landmarks=X[::4], class_weight=class_weight, **GRID
    ).fit(X, y, sample_domain=d)
    Y = np.where(y[:, None] == model.classes_, 1.0, -1.0)
    expected = dense_scores(model, X, Y, y, d, X[::4], class_weight)
    np.testing.assert_allclose(split_scores(model), expected, rtol=1e-7)


@pytest.mark.filterwarnings("ignore:The groups parameter is ignored")
@pytest.mark.parametrize(
    "cv",
    [
        LeaveDomainsOut(),
        LeaveDomainsOut(2),
        LeaveDomainsOut(2, n_repeats=4, random_state=0),
        LeavePGroupsOut(2),
        KFold(3, shuffle=True, random_state=0),
        RepeatedKFold(n_splits=3, n_repeats=4, random_state=0),
    ],
)
@pytest.mark.parametrize("scoring", [None, "accuracy"])
def test_any_splits_equal_dense_kernel_ridge(cv, scoring):
    X, y, _, d = make_rows(140, n_domains=12)
    landmarks, cost = X[::9], {"a": 3.0}
    model = InvariantRidgeClassifierCV(
        **GRID, kernels=["rbf"], cv=cv, landmarks=landmarks, class_weight=cost, scoring=scoring
    ).fit(X, y, sample_domain=d)
    Y = np.where(y[:, None] == model.classes_, 1.0, -1.0)
    splits = list(cv.split(X, y, d))
    assert model.n_splits_ == len(splits)
    for i, (train, test) in list(enumerate(splits))[::5]:
        weights = compute_sample_weight(cost, y[train])
        for k, point in enumerate(model.cv_results_["params"]):
            f = Dense(X[train], Y[train], d[train], y[train], landmarks, point, weights)(X[test])
            squares = ((f - Y[test]) ** 2).mean(axis=1)
            expected = -squares.mean()
            if scoring:
                estimates = np.clip((1 + f) / 2, 1e-6, None) / [cost.get(c, 1.0) for c in "abc"]
                expected = np.mean(model.classes_[estimates.argmax(axis=1)] == y[test])
            actual = model.cv_results_[f"split{i}_test_score"][k]
            np.testing.assert_allclose(actual, expected, rtol=1e-8)


def descriptor_projection(time, gamma, y=None):
    """Weight directions by how well a continuous descriptor explains them, within classes of y."""
    n, y = len(time), np.zeros(len(time)) if y is None else y
    P = np.zeros((n, n))
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        H = np.eye(len(rows)) - 1 / len(rows)
        K = H @ rbf_kernel(time[rows], gamma=gamma) @ H
        P[np.ix_(rows, rows)] = np.linalg.solve(K + n * EPSILON * np.eye(len(rows)), K)
    return (P + P.T) / 2


@pytest.mark.parametrize("conditional", [False, True])
def test_descriptors_of_domains_equal_dense_kernel_ridge(conditional):
    X, y, _, d = make_rows(120)
    time = d[:, None] + np.random.default_rng(1).standard_normal((len(d), 1))
    cv, landmarks = KFold(3, shuffle=True, random_state=0), X[::5]
    model = InvariantRidgeClassifierCV(
        **GRID,
        kernels=["rbf"],
        cv=cv,
        landmarks=landmarks,
        conditionals=[conditional],
        domain_gamma=0.3,
    ).fit(X, y, sample_domain=time)
    Y = np.where(y[:, None] == model.classes_, 1.0, -1.0)
    for i, (train, test) in enumerate(cv.split(X)):
        P = descriptor_projection(time[train], 0.3, y[train] if conditional else None)
        for k, point in enumerate(model.cv_results_["params"]):
            f = Dense(X[train], Y[train], d[train], y[train], landmarks, point, P=P)(X[test])
            squares = ((f - Y[test]) ** 2).mean(axis=1)
            expected = -squares.mean()
            actual = model.cv_results_[f"split{i}_test_score"][k]
            np.testing.assert_allclose(actual, expected, rtol=1e-4)


@pytest.mark.parametrize("n_landmarks", [1.0, 0.8, 0.3])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "linear"])
def test_landmarks_among_the_rows_equal_dense_kernel_ridge(kernel, n_landmarks):
    X, y, _, d = make_rows()
    X[20:25] = X[20]
    grid = {**GRID, "gammas": [1.0]}  # whose inverse is accurate
    model = InvariantRidgeClassifierCV(kernels=[kernel], n_landmarks=n_landmarks, **grid)
    model.fit(X, y, sample_domain=d)
    about = backend_of(X), X, check_sample_domain(d, len(X)), make_kernel(kernel, X, gamma=1.0)
    landmarks = resolve_landmarks(model, *about, len(X))
    Y = np.where(y[:, None] == model.classes_, 1.0, -1.0)
    expected = dense_scores(model, X, Y, y, d, landmarks)
    np.testing.assert_allclose(split_scores(model), expected, rtol=1e-7)


def test_class_weights_multiply_errors_as_in_svc():
    X, y, _, d = make_rows()
    landmarks, cost = X[::4], {"a": 3.0, "c": 0.5}
    model = InvariantRidgeClassifierCV(
        kernels=["rbf"], landmarks=landmarks, class_weight=cost, n_average=1, **GRID
    ).fit(X, y, sample_domain=d)
    Y = np.where(y[:, None] == model.classes_, 1.0, -1.0)
    weights = compute_sample_weight(cost, y)
    expected = Dense(X, Y, d, y, landmarks, model.members_[0], weights)(X[:9])
    np.testing.assert_allclose(model.decision_function(X[:9]), expected, rtol=1e-6)
    ones = clone(model).set_params(class_weight={"a": 1.0, "b": 1.0, "c": 1.0})
    plain = clone(model).set_params(class_weight=None).fit(X, y, sample_domain=d)
    np.testing.assert_allclose(
        ones.fit(X, y, sample_domain=d).decision_function(X), plain.decision_function(X), atol=1e-8
    )


def test_weights_for_unknown_classes_are_refused():
    X, y, _, d = make_rows()
    model = InvariantRidgeClassifierCV(class_weight={"z": 2.0}, **GRID)
    with pytest.raises(ValueError, match="class_weight contains 'z', which is not a class of y"):
        model.fit(X, y, sample_domain=d)


def test_a_class_weight_of_zero_is_refused():
    X, y, _, d = make_rows()
    model = InvariantRidgeClassifierCV(class_weight={"a": 0.0}, **GRID)
    with pytest.raises(ValueError, match="class_weight is 0 for class 'a'. Use positive weights"):
        model.fit(X, y, sample_domain=d)


def test_float32_rows_give_float32_accuracy():
    X, _, t, d = make_rows()
    model = InvariantRidgeCV(**GRID, landmarks=X[::5])
    double = clone(model).fit(X, t + 1e4, sample_domain=d)
    single = clone(model).fit(X.astype(np.float32), t + 1e4, sample_domain=d)
    np.testing.assert_allclose(split_scores(single), split_scores(double), rtol=1e-3)


def test_results_do_not_depend_on_threads_or_workers(monkeypatch):
    X, y, _, d = make_rows(400)
    monkeypatch.setattr("domainwise.algebra.gram.sums.BATCH_ROWS", 50)
    model = InvariantRidgeClassifierCV(**GRID, n_landmarks=40)
    alone = clone(model).fit(X, y, sample_domain=d)
    monkeypatch.setattr("domainwise.algebra.gram.tiles.n_threads", lambda: 3)
    threads = clone(model).fit(X, y, sample_domain=d)
    np.testing.assert_allclose(split_scores(threads), split_scores(alone), rtol=1e-10)


def test_training_moments_equal_those_of_the_remaining_rows():
    X, _, t, d = make_rows(300, n_domains=7)
    nystrom = NystromMap.from_landmarks(make_kernel("rbf", X, gamma=0.2), X[::10])
    for cv in (None, LeaveDomainsOut(3), LeaveDomainsOut(2, n_repeats=3, random_state=1)):
        part_of, splits = split_domains(cv, np.arange(7) + 1, np.arange(7.0))
        keys = [(p, None) for p in range(part_of.max() + 1)]
        rows = CellRows(part_of[d], d, keys, [(None, k) for k in range(7)], t[:, None])
        cells = sum_cells(nystrom, X, rows)
        for (train, test), found in zip(splits, cells_by_split(cells, splits), strict=True):
            for parts, merged in zip((train, test), found, strict=True):
                inside = np.isin(part_of[d], parts)
                values = np.column_stack([nystrom.features(X[inside]), t[inside]])
                expected = (values - values.mean(0)).T @ (values - values.mean(0))
                cell = joined_cells(merged)
                assert cell.n_samples == inside.sum()
                np.testing.assert_allclose(cell.second, expected, atol=1e-9)
                assert {k for _, k in cell.groups} == set(np.unique(d[inside]))


def test_items_that_no_split_separates_form_one_part():
    part_of, splits = split_parts([(np.arange(2, 6), np.arange(2)), (np.arange(4), [4, 5])], 6)
    assert len(np.unique(part_of)) == 3
    assert [part_of[i] for i in (0, 2, 4)] == [part_of[i] for i in (1, 3, 5)]
    for train, test in splits:
        assert not set(train) & set(test)


def test_penalties_grow_with_the_number_of_rows():
    X, _, t, d = make_rows(2500)
    model = InvariantRidgeCV(kernels=["linear"], domain_weights=[0.0])
    model.fit(X, t, sample_domain=d)
    alphas = sorted({point["alpha"] for point in model.cv_results_["params"]})
    np.testing.assert_allclose(alphas, 2.5 * np.array([0.01, 0.1, 0.3, 1, 3, 10, 100]))
