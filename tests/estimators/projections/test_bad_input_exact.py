"""Errors for invalid input in exact estimators say what was passed and what is accepted.

What holds for every estimator is in ``tests/test_common.py`` and ``tests/base``.
"""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel

import domainwise.algebra.gram.dense as dense_module
from domainwise import COIR, DCM, DICA, KPCA

MODELS = [
    pytest.param(DCM(), id="dcm"),
    pytest.param(COIR(), id="coir"),
    pytest.param(DICA(), id="dica"),
    pytest.param(KPCA(), id="kpca"),
]
each_model = pytest.mark.parametrize("model", MODELS)

rng = np.random.default_rng(0)
N = 30
X = rng.normal(size=(N, 3))
Y = np.arange(N) % 2
D = np.arange(N) % 3


def fit(model, X=X, y=Y, sample_domain=D):
    return clone(model).fit(X, y, sample_domain=sample_domain)


# X ------------------------------------------------------------------------------------------------


@each_model
def test_three_dimensional_x(model):
    with pytest.raises(ValueError, match="dim 3"):
        fit(model, X=X[:, :, None])


@each_model
def test_strings_in_x(model):
    with pytest.raises(ValueError, match="could not convert string to float"):
        fit(model, X=X.astype(str).astype(object) + "m")


@each_model
def test_no_rows_and_no_features(model):
    with pytest.raises(ValueError, match=r"0 sample\(s\) \(shape=\(0, 3\)\).*minimum of 2"):
        fit(model, X=X[:0], y=Y[:0], sample_domain=D[:0])
    with pytest.raises(ValueError, match=r"0 feature\(s\) \(shape=\(30, 0\)\).*minimum of 1"):
        fit(model, X=X[:, :0])


# y and sample_domain ------------------------------------------------------------------------------

SUPERVISED = pytest.mark.parametrize("model", MODELS[:3])


@SUPERVISED
def test_y_with_another_length(model):
    with pytest.raises(ValueError, match="y has 29 entries, but X has 30 rows"):
        fit(model, y=Y[:-1])


@each_model
def test_sample_domain_with_another_length(model):
    with pytest.raises(ValueError, match="sample_domain has 31 entries, but X has 30 rows"):
        fit(model, sample_domain=np.arange(31) % 3)
    with pytest.raises(ValueError, match="sample_domain is a single value, but X has 30 rows"):
        fit(model, sample_domain="site")
    with pytest.raises(
        ValueError, match=r"sample_domain must have one or two dimensions.*\(30, 1, 1\)"
    ):
        fit(model, sample_domain=np.zeros((N, 1, 1)))


@SUPERVISED
def test_y_with_the_wrong_shape_or_type(model):
    with pytest.raises(
        ValueError, match=r"y must have one or two dimensions, got shape \(30, 1, 1\)"
    ):
        fit(model, y=np.zeros((N, 1, 1)))
    with pytest.raises(ValueError, match="y is a single value, but X has 30 rows"):
        fit(model, y=3)
    with pytest.raises(ValueError, match="Complex data not supported: y is complex"):
        fit(model, y=Y + 1j)


@SUPERVISED
def test_y_with_one_class_says_which(model):
    with pytest.raises(ValueError, match="y has only one class .*1.* at least 2 classes"):
        fit(model, y=np.ones(N, dtype=int))
    with pytest.raises(ValueError, match="y has only one class .*healthy.* at least 2 classes"):
        fit(model, y=["healthy"] * N)


@SUPERVISED
def test_a_constant_continuous_y(model):
    with pytest.raises(ValueError, match="y is constant .*0.5"):
        fit(model, y=np.full(N, 0.5))
    with pytest.raises(ValueError, match="y is constant"):
        fit(model, y=np.full((N, 2), 0.5))


@SUPERVISED
def test_missing_values_in_y(model):
    with pytest.raises(ValueError, match="Input y contains NaN or infinity"):
        fit(model, y=np.where(np.arange(N) == 3, np.nan, X[:, 0]))
    with pytest.raises(ValueError, match="Input y contains NaN or infinity"):
        fit(model, y=np.where(np.arange(N) == 3, np.inf, X[:, 0]))
    for missing in (None, np.nan):
        labels = np.array(["a", "b"], dtype=object)[Y]
        labels[3] = missing
        for y in (labels, labels.tolist()):
            with pytest.raises(ValueError, match="y contains missing values"):
                fit(model, y=y)


@SUPERVISED
def test_class_labels_instead_of_numbers(model):
    with pytest.raises(
        ValueError, match='y contains labels .*, but numbers are required.*target_kernel.*"delta"'
    ):
        fit(clone(model).set_params(target_kernel="rbf"), y=np.array(["a", "b"])[Y])
    with pytest.raises(ValueError, match=r"one label per row; got shape \(30, 2\).*target_kernel"):
        fit(clone(model).set_params(target_kernel="delta"), y=X[:, :2])


def test_domain_labels_instead_of_numbers():
    with pytest.raises(
        ValueError, match="sample_domain contains .*numbers are required.*domain_kernel"
    ):
        fit(DCM(domain_kernel="rbf"), sample_domain=np.array(["a", "b", "c"])[D])
    with pytest.raises(ValueError, match=r"one label per row; got shape \(30, 2\).*domain_kernel"):
        fit(DCM(domain_kernel="delta"), sample_domain=X[:, :2])


def test_a_missing_y_for_a_method_that_requires_it():
    with pytest.raises(ValueError, match="COIR requires y to be passed, but the target y is None"):
        COIR().fit(X)


def test_conditional_with_a_continuous_or_missing_y():
    with pytest.raises(ValueError, match="conditional=True .* but y is continuous"):
        fit(DCM(conditional=True), y=X[:, 0])
    with pytest.raises(ValueError, match="conditional=True .* but y is missing"):
        fit(DCM(conditional=True), y=None)


@each_model
def test_more_components_than_centred_rows_can_have(model):
    with pytest.raises(ValueError, match="n_components must be at most n_samples - 1 = 29; got 30"):
        fit(clone(model).set_params(n_components=30))


@each_model
def test_kernel_params_for_a_named_kernel(model):
    with pytest.raises(ValueError, match="kernel_params=.*needs a callable kernel"):
        fit(clone(model).set_params(kernel_params={"gamma": 1.0}))


@each_model
def test_a_callable_kernel_that_returns_the_wrong_shape(model):
    with pytest.raises(ValueError, match="callable kernel returned shape .* Return shape"):
        fit(clone(model).set_params(kernel=lambda A, B: np.ones(3)))


# precomputed kernels ------------------------------------------------------------------------------


@each_model
def test_a_precomputed_kernel_that_is_not_square_or_not_symmetric(model):
    model = clone(model).set_params(kernel="precomputed")
    K = rbf_kernel(X)
    with pytest.raises(
        ValueError, match=r"square matrix in fit; got shape \(30, 20\)|Kernel matrix"
    ):
        fit(model, X=K[:, :20])
    K[3, 5] += 0.1
    with pytest.warns(UserWarning, match="is not a kernel: it is not symmetric"):
        Z = fit(model, X=K).transform(K)
    with pytest.warns(UserWarning, match="is not a kernel: it is not symmetric"):
        np.testing.assert_array_equal(Z, model.fit_transform(K, Y, sample_domain=D))


@each_model
def test_a_precomputed_kernel_with_other_columns_in_transform(model):
    model = fit(clone(model).set_params(kernel="precomputed"), X=rbf_kernel(X))
    with pytest.raises(ValueError, match="X has 20 features, but .* is expecting 30 features"):
        model.transform(rbf_kernel(X[:5], X[:20]))


# valid input --------------------------------------------------------------------------------------


def test_one_domain_or_none_equals_coir_with_a_warning():
    expected = COIR().fit(X, Y).transform(X)
    for sample_domain in (None, np.zeros(N), ["only"] * N, np.zeros((N, 2))):
        with pytest.warns(UserWarning, match="DCM learns nothing about domains"):
            model = DCM().fit(X, Y, sample_domain=sample_domain)
        np.testing.assert_allclose(model.transform(X), expected, atol=1e-9)


def test_two_rows_are_enough():
    model = DCM(gamma=1.0).fit(np.array([[0.0], [1.0]]), [0, 1])
    np.testing.assert_allclose(model.embedding_, [[-1.0], [1.0]])


# memory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "what"), [({"solver": "dense"}, 'solver="dense"'), ({"ridge": 0}, "ridge=0")]
)
def test_a_dense_fit_that_exceeds_memory_says_how_much_it_needs(params, what, monkeypatch):
    monkeypatch.setattr(dense_module, "available_memory", lambda *_: 16_000)
    with pytest.raises(MemoryError) as caught:
        fit(DCM(**params))
    message = str(caught.value)
    assert message.startswith(f"{what} stores 30 x 30 matrices, which need about")
    assert "GiB are free" in message
    assert 'use solver="exact"' in message


def test_memory_needed_is_that_of_four_matrices(monkeypatch):
    monkeypatch.setattr(dense_module, "available_memory", lambda *_: 10 * 2**30)
    with pytest.raises(MemoryError, match=r"need about 29.8 GiB, but only 10.0 GiB are free"):
        dense_module.check_dense_memory(31_623, 'solver="dense"')
    dense_module.check_dense_memory(18_000, 'solver="dense"')


def test_no_ridge_with_the_exact_solver_is_an_error_that_names_other_solvers():
    with pytest.raises(ValueError, match='ridge=0 .*Use solver="dense" or solver="auto"'):
        fit(DCM(ridge=0, solver="exact"))
