"""Matrices and functions that are no kernels: a warning, and what transform makes of rows is what
fit made of them."""

import warnings

import numpy as np
import pytest
from sklearn import config_context
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut

import domainwise as dw
from domainwise.selection import InvariantSearchCV

RNG = np.random.default_rng(0)
X = RNG.normal(size=(36, 3))
D, Y = np.arange(36) % 3, np.arange(36) // 3 % 2
EXACT = [dw.DCM, dw.COIR, dw.DICA, dw.KPCA, dw.MDA, dw.MIDA, dw.SCA, dw.InvariantKernel]
FAST = [dw.FastDCM, dw.FastCOIR, dw.FastDICA, dw.FastKPCA, dw.FastMDA, dw.FastMIDA, dw.FastSCA]
FAST += [dw.InvariantFeatures]


def squares(A, B):
    return ((A[:, None] - B) ** 2).sum(-1)


#: Functions, and whether anything of them is positive.
FUNCTIONS = {
    "sigmoid": (lambda A, B: np.tanh(2 * A @ B.T - 1), "not positive semi-definite"),
    "a kernel less another": (
        lambda A, B: np.exp(-squares(A, B)) - 0.7 * np.exp(-squares(A, B) / 9),
        "not positive semi-definite",
    ),
    "asymmetric": (lambda A, B: A @ B.T + 0.5 * A[:, :1], "not symmetric"),
    "neither": (
        lambda A, B: np.tanh(2 * A @ B.T - 1 + A[:, :1] - B[:, 1]),
        "not symmetric.*not positive semi-definite",
    ),
}
HOPELESS = {
    "distances": lambda A, B: np.sqrt(squares(A, B)),
    "squared distances": squares,
    "-K": lambda A, B: -np.exp(-squares(A, B)),
}


def agree(model, rows):
    first = np.asarray(model.fit_transform(rows, Y, sample_domain=D))
    again = np.asarray(model.transform(rows))
    np.testing.assert_allclose(first, again, rtol=1e-9, atol=1e-9 * np.abs(first).max())
    assert np.abs(first).max() > 0


@pytest.mark.parametrize("cls", EXACT + FAST)
def test_a_function_that_is_no_kernel_is_warned_of(cls):
    for function, wrong in FUNCTIONS.values():
        with pytest.warns(UserWarning, match=f"is not a kernel: it is {wrong}"):
            agree(cls(kernel=function), X)


@pytest.mark.parametrize("cls", EXACT)
def test_so_is_a_matrix(cls):
    for function, wrong in FUNCTIONS.values():
        with pytest.warns(UserWarning, match=f"is not a kernel: it is {wrong}"):
            agree(cls(kernel="precomputed"), function(X, X))


@pytest.mark.parametrize("cls", [*EXACT, *FAST, dw.InvariantSVC])
@pytest.mark.filterwarnings("ignore:the matrix .* kernel=:UserWarning")
def test_where_nothing_is_positive_there_is_nothing_to_learn(cls):
    for function in HOPELESS.values():
        with pytest.raises(
            ValueError, match="distances or negated kernel values, pass kernel values instead"
        ):
            cls(kernel=function).fit(X, Y, sample_domain=D)
        if cls not in FAST:
            with pytest.raises(
                ValueError, match="distances or negated kernel values, pass kernel values instead"
            ):
                cls(kernel="precomputed").fit(function(X, X), Y, sample_domain=D)


@pytest.mark.parametrize("cls", EXACT)
def test_minus_squared_distances_are_a_kernel_once_centred(cls):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*not a kernel")
        agree(cls(kernel=lambda A, B: -squares(A, B)), X)
        agree(cls(kernel="precomputed"), -squares(X, X))


def test_the_positive_part_is_that_of_an_eigendecomposition():
    K = np.tanh(2 * X @ X.T - 1)
    H = np.eye(36) - 1 / 36
    values, vectors = np.linalg.eigh(H @ K @ H)
    positive = (vectors * np.maximum(values, 0)) @ vectors.T
    with pytest.warns(UserWarning, match="not a kernel"):
        found = dw.KPCA(kernel="precomputed", n_components=4).fit_transform(K)
    sound = dw.KPCA(kernel="precomputed", n_components=4).fit_transform(positive)
    np.testing.assert_allclose(np.abs(found), np.abs(sound), atol=1e-8)
    with pytest.warns(UserWarning, match="not a kernel"):
        plain = dw.InvariantKernel(kernel="precomputed", domain_weight=0).fit_transform(K)
    np.testing.assert_allclose(plain, positive, atol=1e-10)


def test_machines_predict_the_rows_that_they_have_learnt_as_transform_gives_them():
    K = np.tanh(2 * X @ X.T - 1)
    with pytest.warns(UserWarning, match="not a kernel"):
        model = dw.InvariantSVC(kernel="precomputed", C=1e4).fit(K, Y, sample_domain=D)
    inside = model.machine_.decision_function(model.transformer_.transform(K))
    np.testing.assert_allclose(model.decision_function(K), inside)


@pytest.mark.parametrize("cls", EXACT[:-1])
def test_where_the_matrix_is_not_formed_it_is_refused(cls, monkeypatch):
    monkeypatch.setattr("domainwise.estimators.projections.exact.DENSE_ROWS", 20)
    for function, _ in FUNCTIONS.values():
        with (
            pytest.warns(UserWarning, match="is not a kernel"),
            pytest.raises(ValueError, match="36 rows, the kernel matrix is not stored"),
        ):
            cls(kernel=function).fit(X, Y, sample_domain=D)


def test_an_invariant_kernel_that_is_streamed_refuses_it_too(monkeypatch):
    monkeypatch.setattr("domainwise.estimators.invariant.kernel.DENSE_ROWS", 20)
    with (
        pytest.warns(UserWarning, match="is not a kernel"),
        pytest.raises(ValueError, match="36 rows, the kernel matrix is not stored"),
    ):
        dw.InvariantKernel(kernel=FUNCTIONS["sigmoid"][0]).fit(X, Y, sample_domain=D)


@pytest.mark.parametrize("kernel", ["precomputed", FUNCTIONS["sigmoid"][0]])
@pytest.mark.filterwarnings("ignore:the matrix .* kernel=:UserWarning")
def test_a_search_scores_what_it_will_fit(kernel):
    rows = FUNCTIONS["sigmoid"][0](X, X) if kernel == "precomputed" else X
    machine, grid = dw.InvariantSVC(kernel=kernel), {"C": [0.1, 10.0], "domain_weight": [0.0, 1.0]}
    search = InvariantSearchCV(machine, grid, scoring="accuracy").fit(rows, Y, sample_domain=D)
    with config_context(enable_metadata_routing=True):
        plain = GridSearchCV(machine, grid, cv=LeaveOneGroupOut()).fit(
            rows, Y, groups=D, sample_domain=D
        )
    np.testing.assert_allclose(
        search.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"]
    )


@pytest.mark.dask
def test_a_function_on_a_dask_collection_is_warned_of():
    da = pytest.importorskip("dask.array")
    parts = [da.from_array(each, chunks=12) for each in (X, Y, D)]
    model = dw.FastDCM(kernel=FUNCTIONS["asymmetric"][0])
    with pytest.warns(UserWarning, match="is not a kernel"):
        model.fit(parts[0], parts[1], sample_domain=parts[2])
    with pytest.warns(UserWarning, match="is not a kernel"):
        here = dw.FastDCM(kernel=FUNCTIONS["asymmetric"][0]).fit(X, Y, sample_domain=D)
    np.testing.assert_allclose(model.eigenvalues_, here.eigenvalues_, rtol=1e-6)


@pytest.mark.torch
def test_tensors_follow_the_same_rule():
    torch = pytest.importorskip("torch")
    K = np.tanh(2 * X @ X.T - 1)
    models = [dw.DCM(kernel="precomputed") for _ in range(2)]
    with pytest.warns(UserWarning, match="not a kernel"):
        one = models[0].fit_transform(K, Y, sample_domain=D)
    with pytest.warns(UserWarning, match="not a kernel"):
        two = models[1].fit_transform(torch.tensor(K), Y, sample_domain=D)
    np.testing.assert_allclose(np.abs(one), np.abs(two.numpy()), atol=1e-8)
    agree_again = models[1].transform(torch.tensor(K))
    np.testing.assert_allclose(two.numpy(), agree_again.numpy(), atol=1e-10)
