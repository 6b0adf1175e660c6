"""DCM, COIR, DICA, KPCA, SCA, MDA and MIDA as scikit-learn transformers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from domainwise.algebra.methods import pencils, scatter
from domainwise.base.arguments import NON_NEGATIVE
from domainwise.base.signatures import (
    ComponentArguments,
    DomainArguments,
    ExactArguments,
    TargetArguments,
    arguments,
    with_shared_arguments,
)
from domainwise.estimators.projections.exact_base import KernelProjection
from domainwise.estimators.projections.projection import Projection
from domainwise.held_out.search import grids
from domainwise.held_out.search.grids import Grid

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
class COIRMethod(TargetArguments, Projection):
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
class DICAMethod(TargetArguments, Projection):
    """Arguments of DICA."""

    lam: float = 1e-3
    _method = staticmethod(pencils.dica)


@arguments
class KPCAMethod(ComponentArguments, Projection):
    """Arguments of KPCA, which uses no labels."""

    _method = staticmethod(pencils.kpca)
    _uses_target = False
    _uses_domain = False


@with_shared_arguments
@arguments
class DCM(ExactArguments, DCMMethod, KernelProjection):
    r"""Domain-based covariance minimization: features that separate targets, not domains.

    Finds the directions with the largest :math:`\gamma` in

    .. math:: (P_y K^2 + K) \beta = \gamma \, (w P_d K^2 + K) \beta,
       \qquad P_\cdot = K_\cdot (K_\cdot + N \epsilon I)^{-1}

    where :math:`K`, :math:`K_y` and :math:`K_d` are the centred kernel matrices of the N rows, of
    their targets and of their domains, and w is ``domain_weight``. The problem is reduced exactly
    to one whose size is the number of classes and domains, so no N x N matrix is needed.

    Parameters
    ----------
    {n_components} {kernel} {target} {domain} {epsilon} {ridge} {domain_weight} {solver}

    {exact_sections}

    See Also
    --------
    COIR : The same method without domains.
    DICA : Matches domain means instead.

    Notes
    -----
    Without ``y``, DCM finds principal directions that separate domains as little as possible.
    Without ``sample_domain``, all rows form one domain, and DCM equals COIR.

    References
    ----------
    A. Wu, "Domain generalization via domain-based covariance minimization".

    Examples
    --------
    >>> from domainwise import DCM
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(random_state=0)
    >>> dcm = DCM().fit(data.data, data.target, sample_domain=data.sample_domain)
    >>> dcm.transform(data.data[:3]).shape
    (3, 1)
    """


@with_shared_arguments
@arguments
class COIR(ExactArguments, COIRMethod, KernelProjection):
    r"""Covariance operator inverse regression: directions that separate targets.

    DCM without domains: finds the directions with the largest :math:`\gamma` in
    :math:`(P_y K^2 + K) \beta = \gamma K \beta`, in the notation of :class:`DCM`.
    ``sample_domain`` is accepted and ignored, so that methods can be swapped in a pipeline.

    Parameters
    ----------
    {n_components} {kernel} {target} {epsilon} {ridge} {solver}

    {exact_sections}

    See Also
    --------
    DCM : Adds a penalty on differences between domains.

    References
    ----------
    M. Kim and V. Pavlovic (2011), "Central subspace dimensionality reduction using covariance
    operators", IEEE Transactions on Pattern Analysis and Machine Intelligence.

    Examples
    --------
    >>> from domainwise import COIR
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(random_state=0)
    >>> COIR().fit_transform(data.data, data.target).shape[1]
    1
    """


@with_shared_arguments
@arguments
class DICA(ExactArguments, DICAMethod, KernelProjection):
    r"""Domain-invariant component analysis (Muandet et al., 2013).

    Finds the directions with the largest :math:`\gamma` in
    :math:`P_y K^2 \beta = \gamma (K L K + K + \lambda I) \beta` (see :class:`DCM`), where :math:`L`
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

    References
    ----------
    K. Muandet, D. Balduzzi and B. Schoelkopf (2013), "Domain generalization via invariant feature
    representation", ICML.

    Examples
    --------
    >>> from domainwise import DICA
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(random_state=0)
    >>> dica = DICA().fit(data.data, data.target, sample_domain=data.sample_domain)
    >>> dica.eigenvalues_.shape
    (1,)
    """


@with_shared_arguments
@arguments
class KPCA(ExactArguments, KPCAMethod, KernelProjection):
    """Kernel principal component analysis that does not need to store the kernel matrix.

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

    References
    ----------
    B. Schoelkopf, A. Smola and K.-R. Mueller (1998), "Nonlinear component analysis as a kernel
    eigenvalue problem", Neural Computation.

    Examples
    --------
    >>> from domainwise import KPCA
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(random_state=0)
    >>> KPCA(n_components=2).fit_transform(data.data).std(axis=0).round(6)
    array([1., 1.])
    """


@arguments
class ScatterMethod(ComponentArguments, Projection):
    """Arguments of SCA and MDA."""

    between: float = 0.5
    domain_weight: float = 1.0
    within_weight: float = 1.0
    ridge: float = 1e-3
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"ridge": [NON_NEGATIVE]}
    _needs_target = True
    _needs_classes = True


@arguments
class MIDAMethod(DomainArguments, ComponentArguments, Projection):
    """Arguments of MIDA."""

    _method = staticmethod(pencils.mida)
    _uses_target = False
    #: Kernels of continuous domains are approximated as accurately as in DCM with this epsilon.
    epsilon = 1e-5


@with_shared_arguments
@arguments
class SCA(ExactArguments, ScatterMethod, KernelProjection):
    r"""Scatter component analysis: directions that separate classes, but not domains.

    Finds the directions with the largest :math:`\gamma` in

    .. math:: \left(b K B K + \tfrac{1 - b}{N} K^2\right) \beta
       = \gamma \, (w K D K + v K W K + K + N \rho I) \beta

    where :math:`K` is the centred kernel matrix of the N rows, :math:`B`, :math:`D` and :math:`W`
    are the scatter of class means, of domain means and within classes; :math:`b`, :math:`w`,
    :math:`v` and :math:`\rho` are ``between``, ``domain_weight``, ``within_weight`` and ``ridge``.

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
    The code by S. Hu (see :class:`MDA`) does not divide class scatters by N. Its parameters
    ``beta``, ``delta`` and ``epsilon`` correspond to ``between = beta N / (beta N + 1 - beta)``,
    ``domain_weight = delta``, ``within_weight = N`` and ``ridge = epsilon / N``.

    References
    ----------
    M. Ghifary, D. Balduzzi, W. B. Kleijn and M. Zhang (2017), "Scatter component analysis: a
    unified framework for domain adaptation and domain generalization", IEEE Transactions on Pattern
    Analysis and Machine Intelligence.

    Examples
    --------
    >>> from domainwise import SCA
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(random_state=0)
    >>> sca = SCA(n_components=3).fit(data.data, data.target, sample_domain=data.sample_domain)
    >>> sca.transform(data.data[:2]).shape
    (2, 3)
    """

    _method = staticmethod(scatter.sca)


@with_shared_arguments
@arguments
class MDA(ExactArguments, ScatterMethod, KernelProjection):
    r"""Multidomain discriminant analysis: directions that separate classes, but not domains.

    Finds the directions with the largest :math:`\gamma` in

    .. math:: K (b F + (1 - b) P) K \beta = \gamma \, (w K G K + v K W K + K + N \rho I) \beta

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
    :math:`G` is a mean over pairs of domains. If a class has no rows in a domain, pairs with that
    domain are omitted for this class, and a warning is issued. With one domain, :math:`G` is zero.

    References
    ----------
    S. Hu, K. Zhang, Z. Chen and L. Chan (2019), "Domain generalization via multidomain
    discriminant analysis", UAI.

    Examples
    --------
    >>> from domainwise import MDA
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(random_state=0)
    >>> mda = MDA().fit(data.data, data.target, sample_domain=data.sample_domain)
    >>> mda.transform(data.data[:2]).shape
    (2, 1)
    """

    _method = staticmethod(scatter.mda)


@with_shared_arguments
@arguments
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
    Yan et al. weight the variance by ``mu = 1 / domain_weight``, and append domain features to each
    row. Here, nothing is appended, so that rows from unseen domains can be projected.

    References
    ----------
    K. Yan, L. Kou and D. Zhang (2018), "Learning domain-invariant subspace using domain features
    and independence maximization", IEEE Transactions on Cybernetics.

    Examples
    --------
    >>> from domainwise import MIDA
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(random_state=0)
    >>> mida = MIDA(n_components=2, domain_weight=1e-3)
    >>> mida.fit(data.data, sample_domain=data.sample_domain).transform(data.data[:2]).shape
    (2, 2)
    """
