"""Random Fourier features as a map by themselves."""

import pickle

import numpy as np
import pytest
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel

from domainwise.kernels.fourier import FourierMap

KERNELS = {"rbf": rbf_kernel, "laplacian": laplacian_kernel}


def rows(n=60, p=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n, p))


def columns_of(X, kernel, gamma, m, seed):
    """The columns from their definition, one pair at a time."""
    rng = np.random.RandomState(seed)
    shape = (-(-m // 2), X.shape[1])
    if kernel == "rbf":
        frequencies = np.sqrt(2 * gamma) * rng.standard_normal(shape)
    else:
        frequencies = gamma * rng.standard_cauchy(shape)
    found = []
    for w in frequencies:
        angle = (X * w).sum(axis=1)
        found += [np.cos(angle), np.sin(angle)]
    if m % 2:
        found[-2:] = [np.cos((X * frequencies[-1]).sum(axis=1) + rng.uniform(0, 2 * np.pi))]
    return np.sqrt(2 / m) * np.column_stack(found)


@pytest.mark.parametrize("m", [1, 2, 7, 200])
@pytest.mark.parametrize("kernel", KERNELS)
def test_columns_are_cosines_and_sines_of_frequencies_that_the_seed_alone_draws(kernel, m):
    X = rows()
    columns = FourierMap(kernel, gamma=0.3, n_columns=4, n_features=m, seed=5)
    expected = columns_of(X, kernel, 0.3, m, 5)
    np.testing.assert_allclose(columns.transform(X), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_kernels_error_falls_as_the_root_of_the_number_of_columns(kernel):
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
    # Their variance is (1 + k(2x, 2y) - 2 k(x, y)^2) / M.
    assert errors[-1] < 1.0 / sizes[-1]


def test_pairs_err_less_than_random_phases():
    X = rows(40)
    exact = rbf_kernel(X, gamma=0.02)
    paired, phased = 0.0, 0.0
    for seed in range(20):
        Phi = FourierMap("rbf", 0.02, 4, 200, seed).transform(X)
        paired += np.mean((Phi @ Phi.T - exact) ** 2)
        rng = np.random.default_rng(seed)
        angle = X @ rng.normal(scale=0.2, size=(4, 200)) + rng.uniform(0, 2 * np.pi, 200)
        Phi = np.sqrt(2 / 200) * np.cos(angle)
        phased += np.mean((Phi @ Phi.T - exact) ** 2)
    assert paired < 0.5 * phased


def test_a_row_with_itself_is_one_where_every_column_has_its_pair():
    Phi = FourierMap("laplacian", 2.0, 4, 30, 0).transform(rows())
    np.testing.assert_allclose((Phi**2).sum(axis=1), 1.0, rtol=1e-12)


def test_more_columns_keep_the_frequencies_of_fewer():
    few, many = (FourierMap("rbf", 0.2, 4, m, 3).points for m in (20, 50))
    np.testing.assert_array_equal(few, many[:20])


def test_rows_one_by_one_in_blocks_and_all_at_once_are_the_same():
    X, columns = rows(), FourierMap("laplacian", 0.5, 4, 101, 1)
    whole = columns.transform(X)
    parts = [columns.transform(X[i : i + 7]) for i in range(0, 60, 7)]
    np.testing.assert_allclose(np.vstack(parts), whole, rtol=0, atol=1e-12)
    np.testing.assert_allclose(columns.transform(X[3:4]), whole[3:4], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("offset", [0.0, 4096.0])
def test_float32_rows_lose_nothing_but_the_last_rounding(kernel, offset):
    X = (rows() + offset).astype(np.float32)
    columns = FourierMap(kernel, 1.0, 4, 500, 0)
    single, double = columns.transform(X), columns.transform(X.astype(np.float64))
    assert single.dtype == np.float32
    np.testing.assert_array_equal(single, double.astype(np.float32))


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_tensors_have_the_columns_of_arrays(kernel, dtype):
    torch = pytest.importorskip("torch")
    X, columns = rows().astype(dtype), FourierMap(kernel, 0.3, 4, 33, 2)
    found = columns.transform(torch.from_numpy(X))
    assert found.dtype == getattr(torch, dtype)
    atol = 1e-11 if dtype == "float64" else 1e-7
    np.testing.assert_allclose(found.numpy(), columns.transform(X), rtol=0, atol=atol)


def test_two_maps_of_the_same_arguments_are_equal_and_so_is_a_pickled_one():
    one, other = FourierMap("rbf", 0.3, 4, 9, 2), FourierMap("rbf", 0.3, 4, 9, 2)
    assert one == other == pickle.loads(pickle.dumps(one))
    np.testing.assert_array_equal(one.points, other.points)
    assert one != FourierMap("rbf", 0.3, 4, 9, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel": "poly"}, "kernel='poly' has no random Fourier features.*rbf, laplacian"),
        ({"gamma": -1.0}, "gamma must be .* got -1.0"),
        ({"gamma": "median"}, "gamma must be .* got 'median'"),
        ({"gamma": np.inf}, "gamma must be .* got inf"),
        ({"n_features": 0}, "n_features must be .* got 0"),
        ({"n_columns": 1.5}, "n_columns must be .* got 1.5"),
        ({"seed": -1}, "[Ss]eed"),
    ],
)
def test_unknown_feature_maps_are_refused(change, message):
    good = dict(kernel="rbf", gamma=1.0, n_columns=2, n_features=4, seed=0)
    with pytest.raises(ValueError, match=message):
        FourierMap(**good | change)


def test_orthogonal_frequencies_have_one_length_and_sines_come_first():
    columns = FourierMap("rbf", 0.3, 4, 11, 5, orthogonal=True)
    frequencies, phases = columns.points[:, :-1], columns.points[:, -1]
    np.testing.assert_allclose(phases, np.repeat([-np.pi / 2, 0.0, -np.pi / 2], [4, 4, 3]))
    np.testing.assert_array_equal(frequencies[:4], frequencies[4:8])
    for block in (frequencies[:4], frequencies[8:]):
        np.testing.assert_allclose(block @ block.T, 2.4 * np.eye(len(block)), atol=1e-14)
    X = rows()
    Phi = columns.transform(X)
    np.testing.assert_allclose(Phi[:, :4], np.sqrt(2 / 11) * np.sin(X @ frequencies[:4].T))
    with pytest.raises(ValueError, match="orthogonal=True needs the RBF kernel"):
        FourierMap("laplacian", 0.3, 4, 11, orthogonal=True)


def test_few_orthogonal_columns_err_less_than_independent_ones():
    X, errors = rows(), {}
    K = np.exp(-0.05 * ((X[:, None] - X) ** 2).sum(axis=2))
    for orthogonal in (False, True):
        maps = [FourierMap("rbf", 0.05, 4, 16, seed, orthogonal) for seed in range(40)]
        products = [Phi @ Phi.T for Phi in (columns.transform(X) for columns in maps)]
        errors[orthogonal] = np.mean([(product - K) ** 2 for product in products])
    assert errors[True] < 0.7 * errors[False]
