"""Random Fourier features, without an estimator."""

import pickle

import numpy as np
import pytest
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel

from domainwise.algebra.kernels.approximations import FourierMap

KERNELS = {"rbf": rbf_kernel, "laplacian": laplacian_kernel}


def rows(n=60, p=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n, p))


def features_of(X, kernel, gamma, m, seed):
    """Compute the features from their definition, one pair at a time."""
    rng = np.random.RandomState(seed)
    shape = (-(-m // 2), X.shape[1])
    if kernel == "rbf":
        frequencies = np.sqrt(2 * gamma) * rng.standard_normal(shape)
    else:
        frequencies = gamma * rng.standard_cauchy(shape)
    features = []
    for w in frequencies:
        angle = (X * w).sum(axis=1)
        features += [np.cos(angle), np.sin(angle)]
    if m % 2:
        features[-2:] = [np.cos((X * frequencies[-1]).sum(axis=1) + rng.uniform(0, 2 * np.pi))]
    return np.sqrt(2 / m) * np.column_stack(features)


@pytest.mark.parametrize("m", [1, 2, 7, 200])
@pytest.mark.parametrize("kernel", KERNELS)
def test_features_are_cosines_and_sines_of_frequencies_that_depend_only_on_the_seed(kernel, m):
    X = rows()
    fourier = FourierMap(kernel, gamma=0.3, n_columns=4, n_features=m, seed=5)
    expected = features_of(X, kernel, 0.3, m, 5)
    np.testing.assert_allclose(fourier.transform(X), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_error_decreases_with_the_root_of_the_number_of_features(kernel):
    X = rows(40)
    exact = KERNELS[kernel](X, gamma=0.1)
    sizes = np.array([63, 250, 1000, 4001])
    errors = np.zeros(len(sizes))
    for seed in range(8):
        for k, m in enumerate(sizes):
            Phi = FourierMap(kernel, 0.1, 4, int(m), seed).transform(X)
            errors[k] += np.mean((Phi @ Phi.T - exact) ** 2) / 8
    slope = np.polyfit(np.log(sizes), np.log(errors) / 2, 1)[0]
    assert -0.58 < slope < -0.42
    # The variance of an inner product is (1 + k(2x, 2y) - 2 k(x, y)^2) / M.
    assert errors[-1] < 1.0 / sizes[-1]


def test_pairs_have_smaller_errors_than_random_phases():
    X = rows(40)
    exact = rbf_kernel(X, gamma=0.02)
    pairs_error, phases_error = 0.0, 0.0
    for seed in range(20):
        Phi = FourierMap("rbf", 0.02, 4, 200, seed).transform(X)
        pairs_error += np.mean((Phi @ Phi.T - exact) ** 2)
        rng = np.random.default_rng(seed)
        angle = X @ rng.normal(scale=0.2, size=(4, 200)) + rng.uniform(0, 2 * np.pi, 200)
        Phi = np.sqrt(2 / 200) * np.cos(angle)
        phases_error += np.mean((Phi @ Phi.T - exact) ** 2)
    assert pairs_error < 0.5 * phases_error


def test_the_squared_norm_of_a_row_is_one_if_every_feature_is_in_a_pair():
    Phi = FourierMap("laplacian", 2.0, 4, 30, 0).transform(rows())
    np.testing.assert_allclose((Phi**2).sum(axis=1), 1.0, rtol=1e-12)


def test_maps_with_more_features_begin_with_the_same_frequencies():
    few, many = (FourierMap("rbf", 0.2, 4, m, 3).points for m in (20, 50))
    np.testing.assert_array_equal(few, many[:20])


def test_single_rows_blocks_and_all_rows_have_the_same_features():
    X, fourier = rows(), FourierMap("laplacian", 0.5, 4, 101, 1)
    whole = fourier.transform(X)
    blocks = [fourier.transform(X[i : i + 7]) for i in range(0, 60, 7)]
    np.testing.assert_allclose(np.vstack(blocks), whole, rtol=0, atol=1e-12)
    np.testing.assert_allclose(fourier.transform(X[3:4]), whole[3:4], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("offset", [0.0, 4096.0])
def test_features_of_float32_rows_are_rounded_only_at_the_end(kernel, offset):
    X = (rows() + offset).astype(np.float32)
    fourier = FourierMap(kernel, 1.0, 4, 500, 0)
    single, double = fourier.transform(X), fourier.transform(X.astype(np.float64))
    assert single.dtype == np.float32
    np.testing.assert_array_equal(single, double.astype(np.float32))


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_tensors_have_the_same_features_as_arrays(kernel, dtype):
    torch = pytest.importorskip("torch")
    X, fourier = rows().astype(dtype), FourierMap(kernel, 0.3, 4, 33, 2)
    features = fourier.transform(torch.from_numpy(X))
    assert features.dtype == getattr(torch, dtype)
    atol = 1e-11 if dtype == "float64" else 1e-7
    np.testing.assert_allclose(features.numpy(), fourier.transform(X), rtol=0, atol=atol)


def test_maps_with_the_same_arguments_and_their_pickles_are_equal():
    first, second = FourierMap("rbf", 0.3, 4, 9, 2), FourierMap("rbf", 0.3, 4, 9, 2)
    assert first == second == pickle.loads(pickle.dumps(first))
    np.testing.assert_array_equal(first.points, second.points)
    assert first != FourierMap("rbf", 0.3, 4, 9, 3)


def test_a_kernel_without_fourier_features_is_refused():
    with pytest.raises(ValueError, match="kernel='poly' has no random Fourier features"):
        FourierMap("poly", 1.0, 2, 4)
