"""DCM, COIR, DICA, KPCA, SCA, MDA and MIDA as scikit-learn transformers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from domainwise.algebra import labels as factors
from domainwise.algebra.backends import Backend, backend_of, refuse_dask
from domainwise.algebra.gram import DenseGram
from domainwise.algebra.gram.dense import check_dense_memory
from domainwise.algebra.gram.tiles import kernel_matrix
from domainwise.algebra.kernels.functions import Kernel, positive_part, refuse_unsound
from domainwise.algebra.methods import pencils, scatter
from domainwise.algebra.methods.components import standardize
from domainwise.base.arguments import NON_NEGATIVE
from domainwise.base.arrays import Array, cast, copied, is_tensor, namespace
from domainwise.base.inputs import Labels, check_n_components, rows_with_weight
from domainwise.base.signatures import (
    ComponentArguments,
    DomainArguments,
    ExactArguments,
    TargetArguments,
    arguments,
    documented_arguments,
)
from domainwise.estimators.projections import projection
from domainwise.held_out.search import grids
from domainwise.held_out.search.grids import Grid

#: Up to this many rows, the Gram matrix is stored, which takes less than 80 MB.
DENSE_ROWS = 3000


class KernelProjection(projection.MethodProjection):
    """An exact projection, with coefficients for every training row."""

    solver: str
    tol: float
    max_iter: int
    verbose: int
    #: Default for methods without this argument; 0 would require the dense solver.
    ridge: float = 1.0

    def _fit(self, backend: Backend, X: Any, y: Any, sample_domain: Any, weights: Any) -> None:
        fast_name = f"Fast{type(self).__name__}"
        refuse_dask(self, X, f"Use {fast_name}, which computes on the cluster")
        rows = backend.check_rows(self, X, ensure_min_samples=2)
        arrays = rows, y, sample_domain
        weights, rows, y, sample_domain = rows_with_weight(weights, *arrays, kernel=self.kernel)
        check_n_components(self.n_components, len(rows))
        target, domain = self._check_labels(backend, y, sample_domain, rows)
        self._warn_about_domains(sample_domain, domain, len(rows))
        used_domain = domain if self._uses_domain else None
        labels = self._label_rows(len(rows), target, used_domain, weights)
        kernel = projection.resolved_kernel(self, backend, rows, weights)
        gram, indefinite_K, eigenvectors = self._gram(rows, kernel, labels)
        is_continuous = target is not None and target.values is not None
        solution = self._solve(gram, labels.space, is_continuous)
        solution = standardize(gram, solution, labels.space, warn=self.n_components is not None)
        self._record(kernel, None if target is None else target.names, domain.names)
        self._record_solution(gram, solution)
        self.dual_coef_ = gram.row_coefficients(solution.dual)
        self._offset, embedding = gram.offset(self.dual_coef_), gram.row_values(solution.values)
        if eigenvectors is not None:  # indefinite kernel: project training rows as transform does
            self.dual_coef_ = eigenvectors @ (eigenvectors.T @ self.dual_coef_)
            embedding = indefinite_K @ self.dual_coef_
            self._offset = embedding.mean(0)
            embedding = embedding - self._offset
        self.__dict__.pop("X_fit_", None)  # from an earlier fit
        if kernel.name != "precomputed":
            self.X_fit_ = copied(rows)
        self.embedding_ = cast(embedding, rows.dtype)
        self.n_iter_ = int(solution.info.get("n_iterations", 1))

    def _label_rows(
        self, n_rows: int, target: Labels | None, domain: Labels | None, weights: Array | None
    ) -> factors.RowLabels:
        if domain is not None and domain.n_categories == 1:
            domain = None
        return factors.label_rows(
            n_rows,
            self._feature(target, "target", n_rows, weights),
            self._feature(domain, "domain", n_rows, weights),
            conditional=self.conditional,
            target_values=None if target is None else target.values,
            weights=weights,
        )

    def _feature(
        self, labels: Labels | None, role: str, n_rows: int, weights: Array | None
    ) -> factors.Feature | None:
        if labels is None:
            return None
        if labels.codes is not None:
            return factors.Feature(labels.codes, labels.n_categories)
        kernel, gamma, max_residual = self._label_kernel(role)
        name, n = f"the {role} kernel", n_rows if weights is None else weights.sum()
        tolerance = n * max_residual
        return factors.continuous_feature(labels.values, kernel, gamma, tolerance, name, weights)

    def _gram(self, rows: Any, kernel: Kernel, labels: factors.RowLabels) -> Any:
        """Return the result of :func:`make_gram` for this estimator's solver."""
        options = {name: getattr(self, name) for name in ("tol", "max_iter", "verbose")}
        options["seed"] = projection.fixed_seed(self.random_state)
        has_no_ridge = self.ridge == 0
        use_lapack = self.solver == "dense" or has_no_ridge
        if self.solver == "exact" and has_no_ridge:
            raise ValueError(
                'ridge=0 needs the full Gram matrix, which solver="exact" does not store. Use '
                'solver="dense" or solver="auto".'
            )
        # For tensors, torch raises an error if an allocation fails.
        if use_lapack and kernel.name != "precomputed" and not is_tensor(rows):
            check_dense_memory(len(rows), "ridge=0" if has_no_ridge else 'solver="dense"')
        if use_lapack:
            options["lapack"] = True
        use_dense = use_lapack or len(rows) <= DENSE_ROWS
        return make_gram(rows, kernel, labels, dense=use_dense, **options)


def make_gram(
    rows: Any, kernel: Kernel, labels: factors.RowLabels, *, dense: bool, **options: Any
) -> tuple[Any, Any, Any]:
    """Return the Gram operator, the kernel matrix, and its eigenvectors with positive eigenvalues.

    The matrix and the eigenvectors are None unless the kernel is indefinite.
    """
    is_precomputed = kernel.name == "precomputed"
    if not (is_precomputed or dense):
        refuse_unsound(kernel, len(rows))
        return backend_of(rows).streamed_gram(rows, kernel, labels, **options), None, None
    indefinite_K = eigenvectors = None
    matrix = copied(rows) if is_precomputed else kernel_matrix(kernel, rows)
    if not kernel.sound:
        if labels.roots is not None:
            raise ValueError(
                "sample_weight requires a kernel that is positive semi-definite. Use another "
                "kernel, or omit sample_weight."
            )
        indefinite_K = cast(matrix, namespace(matrix).float64)
        matrix, eigenvectors = positive_part(indefinite_K)
    return DenseGram(matrix, labels, rows.dtype, **options), indefinite_K, eigenvectors


__all__ = ["COIR", "DCM", "DICA", "KPCA", "MDA", "MIDA", "SCA"]


@dataclass(frozen=True)
class Registration:
    """How `evaluate` and `fit` describe and search a projection and its fast variant."""

    title: str
    grid: Grid
    classes_only: bool = False  #: whether the projection needs classes


#: Projections without a search of their own, by name. The others are in ``models/registry.py``.
REGISTERED = {
    "KPCA": Registration("kernel PCA", grids.KPCA),
    "SCA": Registration("scatter component analysis", grids.SCATTER, classes_only=True),
    "MDA": Registration("multidomain discriminant analysis", grids.SCATTER, classes_only=True),
    "MIDA": Registration("maximum independence domain adaptation", grids.MIDA),
}


@arguments
class COIRMethod(TargetArguments, projection.Projection):
    """Arguments of COIR, which is DCM with a domain weight of 0."""

    ridge: float = 1e-3
    domain_weight = 0.0
    _method = staticmethod(pencils.dcm)
    _uses_domain = False
    _needs_target = True


@arguments
class DCMMethod(DomainArguments, COIRMethod):
    """Arguments of DCM, which penalizes differences between domains, overall or within classes."""

    conditional: bool = False
    _uses_domain = True
    _needs_target = False


@arguments
class DICAMethod(TargetArguments, projection.Projection):
    """Arguments of DICA."""

    lam: float = 1e-3
    _method = staticmethod(pencils.dica)


@arguments
class KPCAMethod(ComponentArguments, projection.Projection):
    """Arguments of KPCA, which uses no labels."""

    _method = staticmethod(pencils.kpca)
    _uses_target = False
    _uses_domain = False


@documented_arguments
class DCM(ExactArguments, DCMMethod, KernelProjection):
    r"""Domain-based covariance minimization: features that separate targets, not domains.

    Finds the directions with the largest :math:`\rho` in

    .. math:: (P_y K^2 + K) \beta = \rho \, (w P_d K^2 + K) \beta,
       \qquad P_\cdot = K_\cdot (K_\cdot + N \epsilon I)^{-1}

    where :math:`K`, :math:`K_y` and :math:`K_d` are the centred kernel matrices of the N rows, of
    their targets and of their domains, and w is ``domain_weight``. The problem is reduced exactly
    to one whose size is the number of classes and domains, so no N x N matrix is needed.

    Parameters
    ----------
    {n_components} {kernel} {target} {epsilon} {ridge} {domain} {domain_weight} {solver}

    {exact_sections}

    See Also
    --------
    COIR : The same method without domains.
    DICA : Matches domain means instead.

    Notes
    -----
    The values :math:`f` of a function with the norm :math:`\|f\|` in the space of the kernel
    maximize

    .. math:: \rho = \frac{f'P_y f + \|f\|^2}{w f'P_d f + \|f\|^2},

    the ratio of what the target explains to what the domains explain. With ``ridge=inf``, :math:`f
    = K \beta`; otherwise, :math:`\beta` is smoothed as described at ``ridge``.

    Without ``y``, DCM finds principal directions that separate domains as little as possible.
    Without ``sample_domain``, all rows form one domain, and DCM equals COIR.

    References
    ----------
    {dcm_reference}

    Examples
    --------
    {projection_example}
    accuracy on unseen domains: 0.71
    """


@documented_arguments
class COIR(ExactArguments, COIRMethod, KernelProjection):
    r"""Covariance operator inverse regression: directions that separate targets.

    DCM without domains: finds the directions with the largest :math:`\rho` in
    :math:`(P_y K^2 + K) \beta = \rho K \beta`, in the notation of :class:`DCM`.
    ``sample_domain`` is accepted and ignored, so that methods can be swapped in a pipeline.

    Parameters
    ----------
    {n_components} {kernel} {target} {epsilon} {ridge} {solver}

    {exact_sections}

    See Also
    --------
    DCM : Adds a penalty on differences between domains.

    Notes
    -----
    In the notation of :class:`DCM`, the functions maximize :math:`\rho - 1 = f'P_y f / \|f\|^2`:
    what the target explains, relative to the norm.

    References
    ----------
    {coir_reference}

    Examples
    --------
    {projection_example}
    accuracy on unseen domains: 0.73
    """


@documented_arguments
class DICA(ExactArguments, DICAMethod, KernelProjection):
    r"""Domain-invariant component analysis (Muandet et al., 2013).

    Finds the directions with the largest :math:`\rho` in
    :math:`P_y K^2 \beta = \rho (K L K + K + \lambda I) \beta` (see :class:`DCM`), where :math:`L`
    measures distances between domain means. Without ``y`` (unsupervised DICA), :math:`P_y = I`.

    Parameters
    ----------
    {n_components} {kernel} {target} {epsilon}
    lam : float, default=1e-3
        The regularization :math:`\lambda` above. It is not multiplied by the number of rows, so
        iterative solvers converge more slowly on large problems.
    {solver}

    {exact_sections}

    See Also
    --------
    DCM : Penalizes the covariance that domains explain.

    Notes
    -----
    :math:`P_y K^2` measures what the target explains, :math:`\beta' K L K \beta` the distances
    between domain means, :math:`\beta' K \beta` the norm of the function, and :math:`\beta'\beta`
    that of its coefficients.

    References
    ----------
    {dica_reference}

    Examples
    --------
    {projection_example}
    accuracy on unseen domains: 0.63
    """


@documented_arguments
class KPCA(ExactArguments, KPCAMethod, KernelProjection):
    r"""Kernel principal component analysis that does not need to store the kernel matrix.

    Finds the same directions as :class:`sklearn.decomposition.KernelPCA`, scaled to unit variance.
    ``y`` and ``sample_domain`` are accepted and ignored, so that methods can be swapped in a
    pipeline.

    Parameters
    ----------
    {n_components} {kernel} {solver}

    {exact_sections}

    See Also
    --------
    DCM : Finds directions that vary with the target, not with the domain.

    Notes
    -----
    Solves :math:`K \beta = \lambda \beta`: the components maximize the variance :math:`\beta' K^2
    \beta / N` of functions with the norm :math:`\beta' K \beta = 1`.

    References
    ----------
    {kpca_reference}

    Examples
    --------
    {projection_example}
    accuracy on unseen domains: 0.70
    """


@arguments
class ScatterMethod(ComponentArguments, projection.Projection):
    """Arguments of SCA and MDA."""

    between: float = 0.5
    domain_weight: float = 1.0
    within_weight: float = 1.0
    ridge: float = 1e-3
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"ridge": [NON_NEGATIVE]}
    _needs_target = True
    _needs_classes = True


@arguments
class MIDAMethod(DomainArguments, ComponentArguments, projection.Projection):
    """Arguments of MIDA."""

    _method = staticmethod(pencils.mida)
    _uses_target = False
    #: Kernels of continuous domains are approximated as accurately as in DCM with this epsilon.
    epsilon = 1e-5


@documented_arguments
class SCA(ExactArguments, ScatterMethod, KernelProjection):
    r"""Scatter component analysis: directions that separate classes, but not domains.

    Finds the directions with the largest :math:`\rho` in

    .. math:: \left(b K B K + \tfrac{1 - b}{N} K^2\right) \beta
       = \rho \, (w K D K + v K W K + K + \delta I) \beta

    where :math:`K` is the centred kernel matrix of the N rows, :math:`B`, :math:`D` and :math:`W`
    are the scatter of class means, of domain means and within classes; :math:`b`, :math:`w` and
    :math:`v` are ``between``, ``domain_weight`` and ``within_weight``, and :math:`\delta` is N
    times ``ridge``.

    Parameters
    ----------
    {ten_components} {kernel} {scatter} {solver}

    {exact_sections}

    See Also
    --------
    MDA : Compares domains within each class.
    FastSCA : The same method on Nystrom features.

    Notes
    -----
    The directions maximize :math:`\beta' (b K B K + (1 - b) K^2 / N) \beta` (scatter between
    classes, and variance) under the constraint :math:`\beta' (w K D K + v K W K + K + \delta I)
    \beta = 1`.

    The code by S. Hu (see :class:`MDA`) does not divide class scatters by N. Its parameters
    ``beta``, ``delta`` and ``epsilon`` correspond to ``between = beta N / (beta N + 1 - beta)``,
    ``domain_weight = delta``, ``within_weight = N`` and ``ridge = epsilon / N``.

    References
    ----------
    {sca_reference}

    Examples
    --------
    {projection_example}
    accuracy on unseen domains: 0.70
    """

    _method = staticmethod(scatter.sca)


@documented_arguments
class MDA(ExactArguments, ScatterMethod, KernelProjection):
    r"""Multidomain discriminant analysis: directions that separate classes, but not domains.

    Finds the directions with the largest :math:`\rho` in

    .. math:: K (b F + (1 - b) P) K \beta = \rho \, (w K G K + v K W K + K + \delta I) \beta

    where :math:`F` compares class means with each other, :math:`P` compares them with the overall
    mean, :math:`G` compares the means of a class in pairs of domains, and the other symbols are
    those of :class:`SCA`. In a class mean, a domain is weighted by the share of its rows that
    belong to this class.

    Parameters
    ----------
    {class_components} {kernel} {scatter} {solver}

    {exact_sections}

    See Also
    --------
    SCA : Compares domain means, regardless of classes.
    FastMDA : The same method on Nystrom features.

    Notes
    -----
    The directions maximize :math:`\beta' K (b F + (1 - b) P) K \beta` (distances between class
    means) under the constraint :math:`\beta' (w K G K + v K W K + K + \delta I) \beta = 1`.

    :math:`G` is a mean over pairs of domains. If a class has no rows in a domain, pairs with that
    domain are omitted for this class, and a warning is issued. With one domain, :math:`G` is zero.

    References
    ----------
    {mda_reference}

    Examples
    --------
    {projection_example}
    accuracy on unseen domains: 0.73
    """

    _method = staticmethod(scatter.mda)


@documented_arguments
class MIDA(ExactArguments, MIDAMethod, KernelProjection):
    r"""Maximum independence domain adaptation: principal directions that depend little on domains.

    Finds the leading eigenvectors of :math:`K (I - w \bar K_d) K`. :math:`K` and :math:`\bar K_d`
    are centred kernel matrices of rows and domains; w is ``domain_weight``. ``y`` is ignored.

    Parameters
    ----------
    {ten_components} {kernel} {domain} {independence} {solver}

    {exact_sections}

    See Also
    --------
    KPCA : The same method without domains.
    FastMIDA : The same method on Nystrom features.

    Notes
    -----
    The components maximize :math:`\beta' K (I - w \bar K_d) K \beta` for :math:`\beta'\beta = 1`:
    the variance minus w times the dependence on domains, measured by the Hilbert-Schmidt
    criterion.

    Yan et al. weight the variance by ``mu = 1 / domain_weight``, and append domain features to each
    row. Here, nothing is appended, so that rows from unseen domains can be projected.

    References
    ----------
    {mida_reference}

    Examples
    --------
    {projection_example}
    accuracy on unseen domains: 0.69
    """
