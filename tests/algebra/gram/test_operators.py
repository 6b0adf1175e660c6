"""Every operation of every Gram operator, compared with dense matrices."""

import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.linalg
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning

import domainwise.algebra.gram.dense as dense_module
import domainwise.algebra.gram.iterative as streamed_module
import domainwise.algebra.gram.tiles as tiles_module
import domainwise.estimators.projections.exact as base
from domainwise import COIR, DCM, DICA, KPCA
from domainwise.algebra.gram import DenseGram, StreamedGram
from domainwise.algebra.gram.dense import RefinedCholesky, cholesky_inverse, spectral_solve
from domainwise.algebra.gram.iterative import Preconditioner, conjugate_gradients
from domainwise.algebra.gram.tiles import cross_product, kernel_matrix, symmetric_product
from domainwise.algebra.kernels.functions import make_kernel
from domainwise.algebra.labels import Feature, label_rows
from domainwise.algebra.methods.contract import definite_pairs

KERNELS = ["rbf", "linear", "poly", "laplacian", "cosine"]


class Problem:
    def __init__(self, n=150, p=5, dtype=np.float64, kernel="rbf", seed=0):
        rng = np.random.default_rng(seed)
        self.n = n
        self.y = np.arange(n) % 2
        self.d = rng.permutation(np.arange(n) % 5)
        self.X = (rng.normal(size=(n, p)) + 0.6 * self.y[:, None]).astype(dtype)
        self.kernel = make_kernel(kernel, self.X, gamma=0.1)
        self.labels = label_rows(n, Feature(self.y, 2), Feature(self.d, 5))
        self.V = rng.normal(size=(n, 4))
        self.V -= self.V.mean(axis=0)
        H = np.eye(n) - 1 / n
        self.K = H @ self.kernel.matrix(self.X.astype(np.float64)) @ H

    def dense(self, **options):
        matrix = kernel_matrix(self.kernel, self.X)
        return DenseGram(matrix, self.labels, self.X.dtype, **options)

    def streamed(self, **options):
        return StreamedGram(self.X, self.kernel, self.labels, **options)

    def operators(self, **options):
        return self.dense(**options), self.streamed(**options)


def close(actual, expected, relative):
    assert np.abs(actual - expected).max() <= relative * np.abs(expected).max()


def with_signs_of(B, A):
    """Return A, with the signs of the columns of B."""
    return A * np.sign((A * B).sum(axis=0))


# product ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_products_equal_the_dense_centred_product(kernel):
    p = Problem(kernel=kernel)
    for gram in p.operators():
        close(gram.product(p.V), p.K @ p.V, 1e-12)
        # The second product uses the stored row means.
        close(gram.product(p.V), p.K @ p.V, 1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
def test_float32_products_are_close_to_float64(kernel):
    p = Problem(kernel=kernel, dtype=np.float32)
    for gram in p.operators():
        product = gram.product(p.V)
        assert product.dtype == np.float64
        close(product, p.K @ p.V, 5e-6)


def test_a_product_removes_column_means():
    p = Problem()
    for gram in p.operators():
        close(gram.product(p.V + 3.0), p.K @ p.V, 1e-12)


@pytest.mark.parametrize("rows", [1, 7, 149, 150, 151])
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_tile_size_does_not_change_a_product(kernel, rows, monkeypatch):
    p = Problem(kernel=kernel)
    expected = symmetric_product(p.kernel, p.streamed().prepared_rows, p.V)
    monkeypatch.setattr(tiles_module, "MAX_TILE_BYTES", rows * rows * 8)
    assert tiles_module.tile_side(8) == rows
    prepared = p.kernel.prepare(p.X)
    close(symmetric_product(p.kernel, prepared, p.V), expected, 1e-12)
    close(cross_product(p.kernel, p.X, prepared, p.V), expected, 1e-12)
    close(kernel_matrix(p.kernel, p.X), p.kernel.matrix(p.X) - p.kernel.constant, 1e-10)


def test_working_memory_bounds_the_tile():
    with config_context(working_memory=1):
        assert tiles_module.tile_side(8) ** 2 * 8 <= 2**20
    with config_context(working_memory=1e-4):
        assert tiles_module.tile_side(8) == 3
    with config_context(working_memory=1e-9):
        assert tiles_module.tile_side(8) == 1


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_threads_share_the_tiles_without_changing_the_product(threads, monkeypatch):
    p = Problem()
    monkeypatch.setattr(tiles_module, "n_threads", lambda: threads)
    monkeypatch.setattr(tiles_module, "MAX_TILE_BYTES", 40 * 40 * 8)
    prepared = p.kernel.prepare(p.X)
    first = symmetric_product(p.kernel, prepared, p.V)
    np.testing.assert_array_equal(first, symmetric_product(p.kernel, prepared, p.V))
    close(first, kernel_matrix(p.kernel, p.X) @ p.V, 1e-12)
    close(cross_product(p.kernel, p.X, prepared, p.V), first, 1e-12)


def test_the_kernel_matrix_is_exactly_symmetric(monkeypatch):
    monkeypatch.setattr(tiles_module, "MAX_TILE_BYTES", 40 * 40 * 8)
    for kernel in KERNELS:
        p = Problem(kernel=kernel)
        K = kernel_matrix(p.kernel, p.X)
        np.testing.assert_array_equal(K, K.T)


def test_a_streamed_product_never_stores_the_matrix():
    p = Problem(n=2500)
    gram = p.streamed()
    matrix_bytes = 8 * p.n**2
    with config_context(working_memory=1):
        gram.product(p.V[:, :1])
        tracemalloc.start()
        gram.product(p.V)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 0.1 * matrix_bytes


def test_a_streamed_fit_and_transform_never_store_the_matrix(monkeypatch):
    monkeypatch.setattr(base, "DENSE_ROWS", 100)
    p = Problem(n=2500, dtype=np.float32)
    model = DCM(gamma=0.1, ridge=np.inf)
    with config_context(working_memory=1):
        model.fit(p.X[:200], p.y[:200], sample_domain=p.d[:200])  # fills caches, imports modules
        tracemalloc.start()
        model.fit(p.X, p.y, sample_domain=p.d).transform(p.X)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert model.solver_info_["operator"] == "StreamedGram"
    assert peak < 0.25 * 4 * p.n**2


# solve --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("kernel", KERNELS)
def test_solutions_equal_the_dense_ones(kernel, shift):
    p = Problem(kernel=kernel)
    expected = np.linalg.solve(p.K + shift * np.eye(p.n), p.V)
    for gram in p.operators(tol=1e-11):
        solution = gram.solve(p.V, shift)
        close(solution.X, expected, 1e-7)
        assert solution.info["residual"] < 1e-10


def test_conjugate_gradients_reach_the_tolerance_and_report_the_true_residual():
    p = Problem()
    solution = p.streamed(tol=1e-6).solve(p.V, 0.05)
    residual = p.V - p.K @ solution.X - 0.05 * solution.X
    relative = np.linalg.norm(residual, axis=0) / np.linalg.norm(p.V, axis=0)
    assert solution.info["linear_solver"] == "pcg"
    assert solution.info["residual"] <= 1e-6
    assert relative.max() == pytest.approx(solution.info["residual"], rel=1e-3, abs=1e-12)


def test_conjugate_gradients_without_a_preconditioner_equal_cholesky():
    p = Problem()
    result = conjugate_gradients(lambda P: p.K @ P, p.V, 0.5, lambda R: R, tol=1e-10, max_iter=200)
    assert result.info["residual"] <= 1e-10
    close(result.X, cholesky_inverse(p.K, 0.5)(p.V), 1e-8)


def test_a_nystrom_preconditioner_saves_most_iterations():
    p = Problem(n=400)
    shift = 400 * 1e-5
    features = p.streamed()._landmark_features()
    assert features.dtype == np.float32
    precondition = Preconditioner.from_features(features).at(shift)
    runs = [
        conjugate_gradients(lambda P: p.K @ P, p.V, shift, M, tol=1e-8, max_iter=1000)
        for M in (lambda R: R, precondition)
    ]
    assert all(run.info["residual"] <= 1e-8 for run in runs)
    assert runs[1].info["n_iterations"] * 3 < runs[0].info["n_iterations"]


def test_a_zero_right_hand_side_has_a_zero_solution():
    p = Problem()
    V = np.c_[p.V[:, :1], np.zeros(p.n)]
    for gram in p.operators():
        X = gram.solve(V, 0.1).X
        np.testing.assert_array_equal(X[:, 1], 0)
        close(X[:, 0], np.linalg.solve(p.K + 0.1 * np.eye(p.n), V[:, 0]), 1e-5)


def test_a_stalled_iteration_is_replaced_by_cholesky_if_memory_allows():
    p = Problem()
    solution = p.streamed(tol=1e-10, max_iter=2).solve(p.V, 1e-6)
    assert solution.info["linear_solver"] == "cholesky"
    assert solution.info["pcg_iterations"] == 2
    assert solution.info["residual"] < 1e-10


def test_a_stalled_iteration_warns_if_memory_does_not_allow_cholesky(monkeypatch):
    monkeypatch.setattr(streamed_module, "available_memory", lambda *_: 1000)
    monkeypatch.setattr("domainwise.algebra.gram.iterative.PRECONDITIONER_RANK", 5)
    p = Problem()
    with pytest.warns(ConvergenceWarning, match="relative residual of .* after 2 iterations"):
        p.streamed(tol=1e-10, max_iter=2).solve(p.V, 1e-3)


def test_a_solve_without_a_shift_uses_the_pseudo_inverse_and_reports_the_rank():
    p = Problem(kernel="linear")
    with pytest.warns(UserWarning, match="numerical rank 5 of at most 149"):
        solution = p.dense().solve(p.V, 0.0)
    assert solution.info["rank"] == 5
    close(solution.X, np.linalg.pinv(p.K, rcond=1e-10, hermitian=True) @ p.V, 1e-10)
    with pytest.raises(ValueError, match='ridge=0.*solver="dense"'):
        p.streamed().solve(p.V, 0.0)


def test_several_shifts_share_the_products_of_one_solve(monkeypatch):
    p = Problem()
    shifts = [0.15, 1.5, 150.0]
    single = p.streamed(tol=1e-10).solve(p.V, shifts[0])
    gram = p.streamed(tol=1e-10)
    assert len(gram.row_means) == p.n
    widths = []

    def multiply(kernel, rows, V, **options):
        widths.append(V.shape[1])
        return symmetric_product(kernel, rows, V, **options)

    monkeypatch.setattr(tiles_module, "symmetric_product", multiply)
    solutions = gram.solve_shifts(p.V, shifts)
    assert len(widths) <= single.info["n_iterations"] + 3
    assert set(widths) == {len(shifts) * p.V.shape[1]}
    for shift, solution in zip(shifts, solutions, strict=True):
        close(solution.X, np.linalg.solve(p.K + shift * np.eye(p.n), p.V), 1e-8)
        close(solution.image, p.K @ solution.X, 1e-8)
    for shift, solution in zip(shifts, p.dense().solve_shifts(p.V, shifts), strict=True):
        close(solution.X, np.linalg.solve(p.K + shift * np.eye(p.n), p.V), 1e-8)
    assert gram.solve_shifts(p.V, []) == []


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_solutions_with_float32_factors_are_refined_to_double_precision_or_rejected(scale):
    p = Problem()
    K, solver = scale * p.K, RefinedCholesky(scale * p.K)
    for fraction in (1e-4, 1e-2, 10.0):
        shift = fraction * np.trace(K)
        solution = solver.solve(p.V, shift)
        assert solution.info["residual"] <= 1e-12
        close(solution.X, np.linalg.solve(K + shift * np.eye(p.n), p.V), 1e-9)
        close(solution.image, K @ solution.X, 1e-12)
    assert solver.solve(p.V, 1e-9 * np.trace(K)) is None
    assert solver.solve(p.V, 0.0) is None


def test_a_nearly_semi_definite_matrix_is_solved_by_its_eigenvalues():
    p = Problem(kernel="linear")
    K = p.K - 1e-9 * np.eye(p.n)
    assert cholesky_inverse(K, 1e-12) is None
    X, rank = spectral_solve(K, p.K @ p.V, 1e-12)
    assert rank == 5
    close(p.K @ X, p.K @ p.V, 1e-8)


# eigenpairs ---------------------------------------------------------------------------------------


def deflation(gram, p):
    Q = scipy.linalg.orth(gram.lift(np.hstack([p.labels.space.target, p.labels.space.domain])))
    KQ = gram.product(Q)
    return Q, KQ, np.linalg.pinv(gram.inner(Q, KQ), hermitian=True)


@pytest.mark.parametrize("deflated", [False, True])
@pytest.mark.parametrize("solver", ["lapack", "krylov", "streamed"])
def test_leading_pairs_equal_dense_eigh(solver, deflated, monkeypatch):
    if solver == "krylov":
        monkeypatch.setattr(dense_module, "LAPACK_ROWS", 10)
    p = Problem()
    gram = p.streamed() if solver == "streamed" else p.dense()
    D, deflate = p.K, None
    if deflated:
        Q, KQ, G_pinv = deflate = deflation(gram, p)
        assert Q.shape[1] == 5
        D = p.K - KQ @ G_pinv @ KQ.T
    pairs = gram.leading(6, deflate)
    values, vectors = np.linalg.eigh((D + D.T) / 2)
    close(pairs.values, values[::-1][:6], 1e-10)
    expected = vectors[:, ::-1][:, :6]
    close(with_signs_of(expected, pairs.X), expected, 1e-6)
    close(pairs.KX, p.K @ pairs.X, 1e-10)
    assert pairs.info["converged"]


@pytest.mark.parametrize("depth", [1, 2])
def test_ritz_pairs_of_a_generalized_problem_equal_scipy(depth):
    # A x = theta B x in the coordinates X with A = K (depth 1) or K^2 (depth 2), B = FF' + I.
    p = Problem()
    F = p.V
    A = p.K if depth == 1 else p.K @ p.K

    def images(X, KX, KKX):
        return X, KX if depth == 1 else KKX, X + F @ (F.T @ X)

    values, vectors = scipy.linalg.eigh(A, F @ F.T + np.eye(p.n))
    for gram in (p.dense(), p.streamed()):
        pairs = gram.ritz(images, 4, depth=depth, start=F)
        close(pairs.values, values[::-1][:4], 1e-8)
        X = pairs.X / np.linalg.norm(pairs.X, axis=0)
        expected = vectors[:, ::-1][:, :4]
        expected = expected / np.linalg.norm(expected, axis=0)
        close(with_signs_of(expected, X), expected, 1e-4)


def test_all_eigenpairs_can_be_requested():
    p = Problem(n=12)
    for gram in p.operators():
        pairs = gram.leading(11)
        np.testing.assert_allclose(
            pairs.values, np.linalg.eigvalsh(p.K)[::-1][:11], atol=1e-9 * pairs.values[0]
        )


@pytest.mark.parametrize("scale", [1e-60, 1e-30, 1.0, 1e60])
def test_eigenpairs_and_inverses_are_precise_for_a_stored_matrix_of_any_scale(scale):
    p = Problem(n=810)
    gram = DenseGram(scale * p.K, p.labels, np.float64, tol=1e-8)
    pairs = gram.ritz(lambda X, KX, _: (X, KX, X), 4)
    assert pairs.info["converged"]
    close(pairs.values, scale * np.linalg.eigvalsh(p.K)[::-1][:4], 1e-10)
    for fraction in (1e-2, 10.0):
        shift = scale * fraction * np.trace(p.K)
        solution, _ = gram.solve_shifts(p.V, [shift, 2 * shift])
        approximation = gram.preconditioner(shift)(p.V)
        close(solution.image + shift * solution.X, p.V, 1e-10)
        if fraction < 1:  # for a shift above the trace, a preconditioner returns V itself
            close(approximation, solution.X, 1e-4)


def test_eigenpairs_converge_if_the_search_space_is_restarted(monkeypatch):
    p = Problem(kernel="laplacian")
    gram = p.streamed(tol=1e-8)
    start = np.random.default_rng(1).normal(size=(p.n, 4))
    monkeypatch.setattr("domainwise.algebra.gram.rows.MAX_COLUMNS", 12)
    monkeypatch.setattr(gram, "first_block", lambda k: start)
    pairs = gram.ritz(lambda X, KX, _: (X, KX, X), 3)
    assert pairs.info["converged"]
    assert pairs.info["n_iterations"] > 5
    close(pairs.values, np.linalg.eigvalsh(p.K)[::-1][:3], 1e-10)


def test_definite_pairs_omit_the_null_space_of_the_right_side():
    rng = np.random.default_rng(0)
    M = rng.normal(size=(8, 5))
    S = rng.normal(size=(8, 8))
    A, B = S + S.T, M @ M.T
    values, C = definite_pairs(A, B)
    Q = scipy.linalg.orth(M)
    expected = scipy.linalg.eigh(Q.T @ A @ Q, Q.T @ B @ Q, eigvals_only=True)[::-1]
    np.testing.assert_allclose(values, expected, rtol=1e-8)
    np.testing.assert_allclose(C.T @ B @ C, np.eye(5), atol=1e-8)


# estimators on either operator --------------------------------------------------------------------

ESTIMATORS = [
    pytest.param(DCM(), id="dcm"),
    pytest.param(DCM(ridge=np.inf), id="dcm-inf"),
    pytest.param(DCM(n_components=4), id="dcm-extras"),
    pytest.param(DCM(conditional=True, domain_weight=0.1), id="dcm-conditional"),
    pytest.param(COIR(n_components=3), id="coir-extras"),
    pytest.param(DICA(), id="dica"),
    pytest.param(DICA(n_components=3), id="dica-extras"),
    pytest.param(KPCA(n_components=4), id="kpca"),
]


def fitted(model, p, y, dtype=np.float64):
    from sklearn.base import clone

    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="only .* components are informative about the target"
        )
        return clone(model).fit(p.X.astype(dtype), y, sample_domain=p.d)


@pytest.mark.parametrize("model", ESTIMATORS)
def test_streamed_and_dense_fits_agree(model, monkeypatch):
    p = Problem(n=200)
    model.set_params(tol=1e-10)
    dense = fitted(model.set_params(solver="dense"), p, p.y)
    exact = fitted(model.set_params(solver="exact"), p, p.y)
    monkeypatch.setattr(base, "DENSE_ROWS", 10)
    streamed = fitted(model, p, p.y)
    assert streamed.solver_info_["operator"] == "StreamedGram"
    assert exact.solver_info_["operator"] == dense.solver_info_["operator"] == "DenseGram"
    new = Problem(n=30, seed=5).X
    for other in (exact, streamed):
        np.testing.assert_allclose(other.eigenvalues_, dense.eigenvalues_, rtol=1e-8)
        close(other.embedding_, dense.embedding_, 1e-6)
        close(other.transform(new), dense.transform(new), 1e-5)


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(DCM(n_components=3, domain_weight=0.05), id="dcm"),
        pytest.param(DICA(n_components=3, lam=0.1), id="dica"),
        pytest.param(KPCA(n_components=3), id="kpca"),
    ],
)
def test_streamed_and_dense_fits_agree_without_labels(model, monkeypatch):
    p = Problem(n=200)
    model.set_params(tol=1e-10)
    dense = fitted(model.set_params(solver="dense"), p, None)
    monkeypatch.setattr(base, "DENSE_ROWS", 10)
    monkeypatch.setattr(dense_module, "LAPACK_ROWS", 10)
    streamed = fitted(model.set_params(solver="exact"), p, None)
    np.testing.assert_allclose(streamed.eigenvalues_, dense.eigenvalues_, rtol=1e-8)
    close(streamed.embedding_, dense.embedding_, 1e-4)


@pytest.mark.parametrize("model", ESTIMATORS)
@pytest.mark.parametrize("streamed", [False, True])
def test_float32_fits_are_close_to_float64(model, streamed, monkeypatch):
    if streamed:
        monkeypatch.setattr(base, "DENSE_ROWS", 10)
    p = Problem(n=200)
    model.set_params(solver="auto", tol=1e-6)
    single, double = fitted(model, p, p.y, np.float32), fitted(model, p, p.y)
    assert single.embedding_.dtype == np.float32
    assert single.transform(p.X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(single.eigenvalues_, double.eigenvalues_, rtol=1e-4)
    close(single.embedding_, double.embedding_, 3e-3)
    close(single.transform(p.X.astype(np.float32)), double.embedding_, 1e-2)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("kernel", ["linear", "cosine"])
def test_float32_rows_of_a_low_rank_kernel_project_like_float64_at_a_small_ridge(
    kernel, streamed, monkeypatch
):
    # The kernel maps large parts of the coefficients to zero; rounding must not prevent this.
    if streamed:
        monkeypatch.setattr(base, "DENSE_ROWS", 10)
    p = Problem(n=300)
    model = DCM(kernel=kernel, ridge=1e-6)
    single, double = fitted(model, p, p.y, np.float32), fitted(model, p, p.y)
    close(single.embedding_, double.embedding_, 1e-4)
    close(single.transform(p.X.astype(np.float32)), double.embedding_, 1e-4)


def test_unsupervised_dcm_of_float32_rows_converges_and_reports_it(monkeypatch):
    monkeypatch.setattr(base, "DENSE_ROWS", 10)
    for kernel in KERNELS:
        p = Problem(n=300, kernel=kernel)
        model = DCM(n_components=3, kernel=kernel, gamma=0.1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            single, double = fitted(model, p, None, np.float32), fitted(model, p, None)
        assert single.solver_info_["converged"]
        np.testing.assert_allclose(single.eigenvalues_, double.eigenvalues_, rtol=1e-5)
        close(single.embedding_, double.embedding_, 5e-3)


@pytest.mark.parametrize("working_memory", [1e-3, 0.05, 1024])
def test_working_memory_does_not_change_a_fit(working_memory, monkeypatch):
    monkeypatch.setattr(base, "DENSE_ROWS", 10)
    p = Problem(n=200)
    expected = DCM(gamma=0.1, tol=1e-10).fit(p.X, p.y, sample_domain=p.d)
    with config_context(working_memory=working_memory):
        model = DCM(gamma=0.1, tol=1e-10).fit(p.X, p.y, sample_domain=p.d)
        close(model.transform(p.X), expected.embedding_, 1e-7)
    close(model.embedding_, expected.embedding_, 1e-8)


def test_verbose_prints_the_progress_of_iterative_solvers(monkeypatch, capsys):
    monkeypatch.setattr(base, "DENSE_ROWS", 10)
    p = Problem()
    DCM(verbose=1).fit(p.X, p.y, sample_domain=p.d)
    assert "conjugate gradients, step 1: residual" in capsys.readouterr().out
