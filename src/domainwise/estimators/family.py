"""SCA, MDA and MIDA as scikit-learn transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from domainwise.checks.arguments import NON_NEGATIVE
from domainwise.checks.signatures import (
    ComponentArguments,
    DomainArguments,
    ExactArguments,
    arguments,
    with_shared_arguments,
)
from domainwise.estimators.exact_base import KernelProjection
from domainwise.estimators.projection import Projection
from domainwise.gram import Gram
from domainwise.labels.factors import LabelSpace
from domainwise.methods import mida, scatter
from domainwise.methods.components import Components


@arguments
class ScatterMethod(ComponentArguments, Projection):
    """How SCA and MDA call their method, on whatever operator."""

    between: float = 0.5
    domain_weight: float = 1.0
    within_weight: float = 1.0
    ridge: float = 1e-3
    _method: ClassVar[Callable[..., Components]]
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"ridge": [NON_NEGATIVE]}
    _needs_target = True
    _needs_classes = True

    def _solve(self, gram: Gram, labels: LabelSpace, continuous: bool) -> Components:
        return type(self)._method(
            gram,
            labels,
            n_components=self.n_components,
            between=self.between,
            domain_weight=self.domain_weight,
            within_weight=self.within_weight,
            ridge=self.ridge,
        )


@arguments
class MIDAMethod(DomainArguments, ComponentArguments, Projection):
    """How MIDA calls its method."""

    _uses_target = False
    #: How closely kernels of continuous descriptors are followed: as DCM's with this epsilon.
    epsilon = 1e-5

    def _solve(self, gram: Gram, labels: LabelSpace, continuous: bool) -> Components:
        return mida.mida(
            gram, labels, n_components=self.n_components, domain_weight=self.domain_weight
        )


@with_shared_arguments
@arguments
class SCA(ExactArguments, ScatterMethod, KernelProjection):
    r"""Scatter component analysis: classes apart, domains together, rows of a class close.

    The largest :math:`\gamma` in

    .. math:: \left(b K B K + \tfrac{1 - b}{N} K^2\right) \beta
       = \gamma \, (w K D K + v K W K + K + N \rho I) \beta

    with the scatters :math:`B` of the classes' means, :math:`D` of the domains' means and
    :math:`W` inside classes; :math:`b, w, v, \rho` are ``between``, ``domain_weight``,
    ``within_weight`` and ``ridge``.

    Parameters
    ----------
    {ten_components} {kernel} {scatter} {solver}

    {exact_sections}

    See Also
    --------
    MDA : Compares domains inside each class.
    FastSCA : The same on Nystrom features.

    Notes
    -----
    The program of S. Hu leaves the scatters of classes undivided by N: its ``beta``, ``delta`` and
    ``epsilon`` are ``between = beta N / (beta N + 1 - beta)``, ``domain_weight = delta``,
    ``within_weight = N`` and ``ridge = epsilon / N``.

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
    r"""Multidomain discriminant analysis: classes apart, each class alike in all domains.

    The largest :math:`\gamma` in

    .. math:: K (b F + (1 - b) P) K \beta = \gamma \, (w K G K + v K W K + K + N \rho I) \beta

    where :math:`F` and :math:`P` set class means apart from each other and from the overall mean,
    :math:`G` compares the means of a class over pairs of domains, and :math:`W` is the scatter
    inside classes; :math:`b, w, v, \rho` are ``between``, ``domain_weight``, ``within_weight`` and
    ``ridge``. A class mean weighs its domains by the class's share in each.

    Parameters
    ----------
    {class_components} {kernel} {scatter} {solver}

    {exact_sections}

    See Also
    --------
    SCA : Compares the domains' means whatever their classes.
    FastMDA : The same on Nystrom features.

    Notes
    -----
    Where a class has no rows in a domain, pairs with that domain are left out of :math:`G` and of
    the count it is divided by, with a warning. With one domain :math:`G` is zero.

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
    r"""Maximum independence domain adaptation: principal directions that domains say little about.

    The leading eigenvectors of :math:`K (I - w \bar K_d) K`, where :math:`\bar K_d` is the centred
    kernel of the domains and :math:`w` is ``domain_weight``. ``y`` is accepted and ignored.

    Parameters
    ----------
    {ten_components} {kernel} {domain} {independence} {solver}

    {exact_sections}

    See Also
    --------
    KPCA : The same without domains.
    FastMIDA : The same on Nystrom features.

    Notes
    -----
    The paper weighs the variance by ``mu = 1 / domain_weight``. Rows are not augmented by their
    domain, so that rows of unseen domains can be projected.

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
