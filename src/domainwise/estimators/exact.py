"""DCM, COIR, DICA and KPCA as scikit-learn transformers."""

from __future__ import annotations

from domainwise.checks.signatures import (
    ComponentArguments,
    DomainArguments,
    ExactArguments,
    TargetArguments,
    arguments,
    with_shared_arguments,
)
from domainwise.estimators.exact_base import KernelProjection
from domainwise.estimators.projection import Projection
from domainwise.gram import Gram
from domainwise.labels.factors import LabelSpace
from domainwise.methods import pencils
from domainwise.methods.components import Components


@arguments
class COIRMethod(TargetArguments, Projection):
    """COIR is DCM for which domains have no price."""

    ridge: float = 1e-3
    domain_weight = 0.0
    _uses_domain = False
    _needs_target = True

    def _solve(self, gram: Gram, labels: LabelSpace, continuous: bool) -> Components:
        return pencils.dcm(
            gram,
            labels,
            n_components=self.n_components,
            continuous=continuous,
            epsilon=self.epsilon,
            ridge=self.ridge,
            domain_weight=self.domain_weight,
        )


@arguments
class DCMMethod(DomainArguments, COIRMethod):
    """DCM asks that price, of domains or of domains inside classes."""

    conditional: bool = False
    _uses_domain = True
    _needs_target = False


@arguments
class DICAMethod(TargetArguments, Projection):
    """How DICA calls its method."""

    lam: float = 1e-3

    def _solve(self, gram: Gram, labels: LabelSpace, continuous: bool) -> Components:
        return pencils.dica(
            gram,
            labels,
            n_components=self.n_components,
            continuous=continuous,
            epsilon=self.epsilon,
            lam=self.lam,
        )


@arguments
class KPCAMethod(ComponentArguments, Projection):
    """How KPCA calls its method."""

    _uses_target = False
    _uses_domain = False

    def _solve(self, gram: Gram, labels: LabelSpace, continuous: bool) -> Components:
        return pencils.kpca(gram, n_components=self.n_components)


@with_shared_arguments
@arguments
class DCM(ExactArguments, DCMMethod, KernelProjection):
    r"""Domain-based covariance minimization: features that tell targets, not domains, apart.

    Finds the directions with the largest :math:`\gamma` in

    .. math:: (P_y K^2 + K) \beta = \gamma \, (w P_d K^2 + K) \beta,
       \qquad P = K_\cdot (K_\cdot + N \epsilon I)^{-1}

    for centred kernel matrices of rows, targets and domains. The problem is reduced exactly to
    one whose size is the number of classes and domains, so that no N x N matrix is needed.

    Parameters
    ----------
    {n_components} {kernel} {target} {domain} {epsilon} {ridge} {domain_weight} {solver}

    {exact_sections}

    See Also
    --------
    COIR : The same without domains.
    DICA : Matches the domains' means instead.

    Notes
    -----
    Without ``y`` the principal directions that tell domains apart least are found. Without
    ``sample_domain`` all rows are one domain, and DCM equals COIR.

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
    r"""Covariance operator inverse regression: directions that tell targets apart.

    DCM without the domains: the largest :math:`\gamma` in
    :math:`(P_y K^2 + K) \beta = \gamma K \beta`. ``sample_domain`` is accepted and ignored, so
    that methods can be swapped in a pipeline.

    Parameters
    ----------
    {n_components} {kernel} {target} {epsilon} {ridge} {solver}

    {exact_sections}

    See Also
    --------
    DCM : Adds a price for telling domains apart.

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

    The largest :math:`\gamma` in :math:`P_y K^2 \beta = \gamma (K L K + K + \lambda I) \beta`,
    where :math:`L` measures how far the domains' means lie apart. Without ``y`` the left side is
    :math:`K^2 \beta` (unsupervised DICA).

    Parameters
    ----------
    {n_components} {kernel} {target} {epsilon}
    lam : float, default=1e-3
        Regularisation of the right side. It is not multiplied by the number of rows, so large
        problems get harder for iterative solvers.
    {solver}

    {exact_sections}

    See Also
    --------
    DCM : Penalises the covariance that domains explain.

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
    """Kernel principal component analysis, without storing the kernel matrix.

    The same directions as :class:`sklearn.decomposition.KernelPCA`, scaled to unit variance.
    ``y`` and ``sample_domain`` are accepted and ignored, so that methods can be swapped in a
    pipeline.

    Parameters
    ----------
    {n_components} {kernel} {solver}

    {exact_sections}

    Examples
    --------
    >>> from domainwise import KPCA
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(random_state=0)
    >>> KPCA(n_components=2).fit_transform(data.data).std(axis=0).round(6)
    array([1., 1.])
    """
