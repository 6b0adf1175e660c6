"""SCA and MDA, which compare the scatters of class means, of domain means and within classes.

If ``e`` is the indicator vector of a group of rows divided by its size, ``K e`` represents the mean
of the group in feature space. A scatter of such means is ``K F F' K``, where F is a thin matrix in
label space. The within-class scatter is ``K (I / N + F F' - E E') K``, with thin matrices F and E.
Indicators are centred, which does not change these products: K maps constant vectors to zero.

Both methods solve a generalized eigenproblem ``B x = gamma R x`` with ``R = A + K M K`` and
``A = c K^2 + K + delta I``, where M is in label space, ``c = within_weight / N`` and
``delta = N ridge``. For a basis Q of label space, only Q, ``K Q`` and ``A^-1 K Q`` have N rows; all
other matrices are small (theory 5.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import svd

from domainwise.algebra.labels import CellCounts, LabelSpace, joint_basis, label_factor
from domainwise.algebra.methods import components
from domainwise.algebra.methods.contract import Gram, Matrix, Solution
from domainwise.base.arrays import Array
from domainwise.base.messages import warn_caller

#: If ``4 c delta`` is at least this, the roots of the quadratic A are complex or nearly equal.
CLOSE_ROOTS = 0.99


@dataclass(frozen=True)
class Scatters:
    """Factors of a method's scatters, in coordinates of label space."""

    between: Array  #: factor of the scatter to maximize
    domain: Array  #: factor of the scatter of domains
    within_added: Array  #: factor F that the within-class scatter adds to ``I / N``
    within_removed: Array  #: factor E that the within-class scatter subtracts from ``I / N``


def sca_scatters(labels: LabelSpace) -> Scatters:
    """Return the scatters of SCA: of class means, of domain means, and within classes."""
    cells = _cells(labels, "SCA")
    class_means, class_frequencies = _group_means(cells.counts, cells.classes)
    between = class_means * np.sqrt(class_frequencies)
    domain_factor = np.zeros((len(cells.counts), 0))
    if cells.domains is not None:
        means, _ = _group_means(cells.counts, cells.domains)
        domain_factor = (means - means.mean(axis=1, keepdims=True)) / np.sqrt(means.shape[1])
    return Scatters(between, domain_factor, between[:, :0], between)


def mda_scatters(labels: LabelSpace, between: float) -> Scatters:
    """Return the scatters of multidomain discriminant analysis.

    In the mean of a class, each domain is weighted by the frequency of the class in that domain.
    ``between`` is the weight of the discrepancy between pairs of classes, and ``1 - between`` is
    the weight of the scatter about the overall mean.
    """
    cells = _cells(labels, "MDA")
    counts, n_cells = cells.counts, len(cells.counts)
    domain_codes = np.zeros(n_cells, dtype=int) if cells.domains is None else cells.domains
    unique_domains, domain_codes = np.unique(domain_codes, return_inverse=True)
    unique_classes, class_codes = np.unique(np.asarray(cells.classes), return_inverse=True)
    n_domains, n_pairs = len(unique_domains), len(unique_classes) * len(unique_domains)
    if n_cells < n_pairs:
        warn_caller(
            f"{n_pairs - n_cells} of {n_pairs} pairs of a class and a domain have no rows and are "
            "omitted from the scatter of domains. Merge small domains or rare classes."
        )
    # For each cell (a class in a domain): its share of the domain's rows, and its one-hot class.
    cell_shares = counts / np.bincount(domain_codes, weights=counts)[domain_codes]
    one_hot = np.eye(len(unique_classes))[class_codes]
    class_weights, domains_per_class = cell_shares @ one_hot, one_hot.sum(axis=0)
    cell_means, _ = _group_means(counts, np.arange(n_cells))
    class_means, class_frequencies = _group_means(counts, class_codes)
    root_frequencies = np.sqrt(class_frequencies)
    u = cell_means @ (one_hot * cell_shares[:, None]) / class_weights  # weighted class means
    overall_mean = u @ class_weights[:, None] / n_domains
    pair_factor = (u - u.mean(axis=1, keepdims=True)) * np.sqrt(2.0 / (u.shape[1] - 1))
    mean_factor = (u - overall_mean) * root_frequencies
    between_factors = [np.sqrt(between) * pair_factor, np.sqrt(1.0 - between) * mean_factor]
    # With the mean e_sj of class j in domain s, average (e_sj - e_tj)(e_sj - e_tj)' over j, s, t:
    # squared differences between all pairs of n points add up to n times their squared deviations.
    n_domain_pairs = float((domains_per_class * (domains_per_class - 1)).sum() / 2)
    domain_factor = cell_means[:, :0]
    if n_domain_pairs:
        deviations = cell_means - (cell_means @ one_hot / domains_per_class) @ one_hot.T
        domain_factor = deviations * np.sqrt(one_hot @ domains_per_class / n_domain_pairs)
    within_added = (u - class_means) * root_frequencies
    within_removed = class_means * root_frequencies
    return Scatters(np.hstack(between_factors), domain_factor, within_added, within_removed)


def _cells(labels: LabelSpace, method_name: str) -> CellCounts:
    if labels.cells is None:
        raise ValueError(f"{method_name} {components.NEEDS_DOMAIN_LABELS}")
    return labels.cells


def _group_means(counts: Array, groups: Array | None) -> tuple[Array, Array]:
    """Return, for groups of cells, centred indicators divided by group sizes, and frequencies.

    The basis vector of a cell is ``1_cell / sqrt(count)``.
    """
    unique_groups, group_codes = np.unique(np.asarray(groups), return_inverse=True)
    group_sizes, root_counts = np.bincount(group_codes, weights=counts), np.sqrt(counts)
    means = root_counts[:, None] * np.eye(len(unique_groups))[group_codes] / group_sizes
    means -= np.outer(root_counts, root_counts @ means) / counts.sum()
    return means, group_sizes / counts.sum()


Problem = tuple[Matrix, Matrix, Array, Array, "Quadratic"]  #: Q, K Q, J, M and A


def _problem(
    gram: Gram, scatters: Scatters, domain_weight: float, within_weight: float, ridge: float
) -> Problem:
    """Express the eigenproblem in a basis Q of label space; return Q, K Q, J, M and A.

    The left side B is ``K Q J J' Q' K``, the right side R is ``A + K Q M Q' K``.
    """
    within_factors = [scatters.within_added, scatters.within_removed]
    used_factors = [scatters.between]
    used_factors += [scatters.domain] if domain_weight else []
    used_factors += [np.hstack(within_factors)] if within_weight else []
    basis = joint_basis(*(label_factor(factor, 1, 0.0) for factor in used_factors))
    factors = (scatters.between, scatters.domain, *within_factors)
    J, D, F, E = (basis.T @ factor for factor in factors)
    M = domain_weight * D @ D.T + within_weight * (F @ F.T - E @ E.T)
    n, (Q, KQ) = gram.n_samples, gram.lifted_product(basis)
    if not gram.inner(KQ, KQ).any():
        raise ValueError(components.CONSTANT_PROJECTION)
    return Q, KQ, J, M, Quadratic(gram, within_weight / n, n * ridge)


def mda(
    gram: Gram,
    labels: LabelSpace,
    *,
    n_components: int | None = None,
    between: float = 0.5,
    domain_weight: float = 1.0,
    within_weight: float = 1.0,
    ridge: float = 1e-3,
) -> components.Components:
    """Multidomain discriminant analysis of Hu et al. (2019)."""
    problem = _problem(gram, mda_scatters(labels, between), domain_weight, within_weight, ridge)
    return _from_labels(gram, problem, n_components)


def sca(
    gram: Gram,
    labels: LabelSpace,
    *,
    n_components: int | None = None,
    between: float = 0.5,
    domain_weight: float = 1.0,
    within_weight: float = 1.0,
    ridge: float = 1e-3,
) -> components.Components:
    """Scatter component analysis of Ghifary et al. (2017).

    With ``between`` below 1, the left side B has a term ``K^2``, whose range is not in label space.
    """
    k = components.unsupervised_count(gram, n_components)
    problem = _problem(gram, sca_scatters(labels), domain_weight, within_weight, ridge)
    if between == 1:
        return _from_labels(gram, problem, k)
    Q, KQ, J, M, A = problem
    between_matrix = between * J @ J.T
    total_scatter_weight = (1.0 - between) / gram.n_samples

    def images(X: Matrix, KX: Matrix, KKX: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        QKX = gram.inner(Q, KX)
        left_image = gram.combine(KQ, between_matrix @ QKX) + total_scatter_weight * KKX
        return X, left_image, gram.combine(KQ, M @ QKX) + A.image(X, KX, KKX)

    pairs = gram.ritz(images, k, depth=2, start=KQ, precondition=A.precondition)
    solution = components.from_pairs(gram, pairs)
    solution.info["label_rank"] = len(M)
    return solution


def _from_labels(gram: Gram, problem: Problem, n_components: int | None) -> components.Components:
    """Solve a problem whose left side B has the range of ``K Q``; solutions are ``A^-1 K Q a``."""
    Q, KQ, J, M, A = problem
    solution = A.inverse_of_image(Q, KQ)
    S = gram.inner(KQ, solution.X)
    eigenvalues, a = label_pairs(S, J, M, gram.tolerance)
    m, n_extra = components.component_count(eigenvalues, len(eigenvalues), n_components, False)
    b, Kb = gram.combine(solution.X, a[:, :m]), gram.combine(solution.image, a[:, :m])
    info: dict[str, Any] = {**solution.info, "label_rank": len(S)}
    first_components = components.Components(b, Kb, eigenvalues[:m], len(eigenvalues), info)
    G = gram.inner(Q, KQ) if n_extra else S
    return components.with_extras(gram, first_components, Q, KQ, G, n_extra, extra_eigenvalue=0.0)


def label_pairs(S: Array, J: Array, M: Array, tolerance: float) -> tuple[Array, Array]:
    """Return the positive eigenvalues of ``J' S (I + M S)^-1 J``, and ``(I + M S)^-1 J z``.

    The columns of z are the eigenvectors. With ``S = Q'K A^-1 K Q = L L'``, the eigenvalues are the
    squared singular values of ``(I + L'M L)^-1/2 L'J``, in descending order. This root exists
    although M is indefinite, because the right side of the problem is positive definite.
    Eigenvalues below ``tolerance`` times the largest one are dropped.
    """
    d, U = np.linalg.eigh((S + S.T) / 2)
    L = U * np.sqrt(np.maximum(d, 0.0))
    core = np.eye(len(S)) + L.T @ M @ L
    w, V = np.linalg.eigh((core + core.T) / 2)
    inverse_root = V / np.sqrt(np.maximum(w, len(w) * np.finfo(float).eps * np.abs(w).max()))
    left, singular_values, right = svd(inverse_root.T @ (L.T @ J), full_matrices=False)
    is_nonzero = singular_values**2 > tolerance * singular_values[0] ** 2
    s, z = singular_values[is_nonzero], right[is_nonzero].T
    return s**2, J @ z - M @ (L @ (inverse_root @ (left[:, is_nonzero] * s)))


class Quadratic:
    """The positive definite matrix ``A = c K^2 + K + delta I``, used through its products.

    c and delta are non-negative. If both are 0, A is K, which is inverted only on its range.
    """

    def __init__(self, gram: Gram, c: float, delta: float) -> None:
        self.gram, self.c, self.delta = gram, c, delta
        self._factor_inverses: list[Callable[[Matrix], Matrix]] | None = None

    def image(self, X: Matrix, KX: Matrix, KKX: Matrix) -> Matrix:
        """Return ``A X``."""
        return self.c * KKX + KX + self.delta * X

    def inverse_of_image(self, V: Matrix, KV: Matrix) -> Solution:
        """Return ``A^-1 K V`` and its image.

        With the roots s and t of ``c s^2 - s + delta``, A is ``c (K + s)(K + t)``, and by partial
        fractions, the result is ``[(K + t)^-1 - (K + s)^-1] K V / (c (s - t))``.
        """
        gram, c, delta = self.gram, self.c, self.delta
        if c == 0 and delta == 0:
            return Solution(V, KV)
        if 4 * c * delta >= CLOSE_ROOTS:
            return self.by_conjugate_gradients(KV)
        shifts = self._shifts()
        small_shift, large_shift = shifts[0], shifts[-1]
        root = float(np.sqrt(1.0 - 4 * c * delta))  # equals c (s - t)
        if c == 0:
            solution = gram.solve(V, small_shift)
            Y, info = solution.image, solution.info
            KY = KV - delta * Y
        elif delta == 0:
            solution = gram.solve(V, 1 / c)
            return Solution(solution.X / c, solution.image / c, dict(solution.info))
        else:
            small_solution, large_solution = gram.solve_shifts(V, shifts)
            info = small_solution.info
            Y = (small_solution.image - large_solution.image) / root
            KY = (large_shift * large_solution.image - small_shift * small_solution.image) / root
        if (components.norms(gram, KY) < 1e-4 * components.norms(gram, KV)).any():
            KY = gram.product(Y)  # the terms cancel if kernel values are small
        return Solution(Y, KY, dict(info))

    def precondition(self, R: Matrix) -> Matrix:
        """Return an approximation of ``A^-1 R``, up to a scalar factor."""
        if self._factor_inverses is None:
            self._factor_inverses = [self.gram.preconditioner(shift) for shift in self._shifts()]
        for inverse in self._factor_inverses:
            R = inverse(R)
        return R

    def _shifts(self) -> list[float]:
        """Return the shifts in the factors ``K + shift`` of A; complex ones are approximated."""
        c, delta = self.c, self.delta
        if 4 * c * delta >= CLOSE_ROOTS:
            return [float(np.sqrt(delta / c))] * 2
        root = float(np.sqrt(1.0 - 4 * c * delta))  # of the discriminant
        small_shift = 2 * delta / (1.0 + root)
        return [small_shift, (1.0 + root) / (2 * c)] if c else [small_shift]

    def by_conjugate_gradients(self, V: Matrix) -> Solution:
        """Solve ``A X = V``."""
        gram = self.gram
        V_norms = components.norms(gram, V)
        V_norms = np.where(V_norms > 0, V_norms, 1.0)
        X, KX, R = 0.0 * V, 0.0 * V, V
        Z = self.precondition(R)
        P, rz = Z, _dots(gram, R, Z)
        residuals: list[float] = []
        while len(residuals) < gram.max_iter:
            KP = gram.product(P)
            AP = self.image(P, KP, gram.product(KP))
            step_sizes = np.diag(_ratio(rz, _dots(gram, P, AP)))
            X, KX = X + gram.combine(P, step_sizes), KX + gram.combine(KP, step_sizes)
            R_old, R = R, R - gram.combine(AP, step_sizes)
            residuals.append(float((components.norms(gram, R) / V_norms).max(initial=0.0)))
            is_stalled = len(residuals) > 8 and residuals[-1] > 0.5 * min(residuals[:-8])
            if residuals[-1] <= 1e-2 * gram.tol or is_stalled:
                break
            Z = self.precondition(R)
            # The Polak-Ribiere formula tolerates rounding errors in the preconditioner.
            rz_old, rz = rz, _dots(gram, R, Z)
            beta = _ratio(rz - _dots(gram, R_old, Z), rz_old)
            P = Z + gram.combine(P, np.diag(beta))
        if residuals[-1] > gram.tol:
            components.warn_stopped(residuals[-1], len(residuals), gram.tol)
        info = {"linear_solver": "pcg on the quadratic", "residual": residuals[-1]}
        return Solution(X, KX, info | {"n_iterations": len(residuals)})


def _dots(gram: Gram, U: Matrix, V: Matrix) -> Array:
    return np.diagonal(gram.inner(U, V))


def _ratio(a: Array, b: Array) -> Array:
    return np.asarray(np.divide(a, b, out=np.zeros_like(a), where=b != 0))
