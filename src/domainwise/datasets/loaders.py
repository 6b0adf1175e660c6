"""Data of four hospitals, and synthetic domains as in the DCM paper (theory 10.2)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.utils import Bunch, check_random_state

from domainwise.base.arguments import CONSTRAINTS, COUNT, POSITIVE, check_arguments
from domainwise.base.messages import needs_extra

_MIN_ROWS = 2
_CONSTRAINTS = {"eta": [POSITIVE], "n_per_domain": [POSITIVE], "c": CONSTRAINTS["coef0"]}
_CONSTRAINTS |= {"n_domains": [COUNT], "n_features": [COUNT]}
#: Contains the data, and a description of each data set.
_FOLDER = Path(__file__).parent


def make_synthetic(
    eta: float = 0.1,
    *,
    n_domains: int = 10,
    n_per_domain: float = 100,
    n_features: int = 10,
    c: float = 2.0,
    random_state: int | np.random.RandomState | None = None,
) -> Bunch:
    r"""Draw the paper's synthetic domains: covariances differ, but the labelling rule does not.

    Domain i has :math:`n_i \sim \mathrm{Poisson}(n)` rows
    :math:`x \sim N(0, \Sigma_i)`, :math:`\Sigma_i \sim \mathrm{Wishart}(\eta I_p, p)`, and

    .. math:: y = \mathrm{sgn}(\mathrm{sgn}(b_1^\top x + \varepsilon_1)
        \log |b_2^\top x + \varepsilon_2 + c|)

    with :math:`b_1, b_2 \sim N(0, I_p)` drawn once and :math:`\varepsilon_1, \varepsilon_2 \sim
    N(0, 1)` drawn for every row.

    Parameters
    ----------
    eta : float, default=0.1
        Scale of the covariances; the paper uses 0.1, 0.2 and 0.5.
    n_domains : int, default=10
        Number of domains.
    n_per_domain : float, default=100
        Mean number of rows per domain. A domain never has fewer than 2 rows.
    n_features : int, default=10
        Number of features, which is also the Wishart distribution's degrees of freedom.
    c : float, default=2.0
        Constant inside the logarithm.
    random_state : int, RandomState instance or None, default=None
        Seed for reproducible draws.

    Returns
    -------
    Bunch
        ``data`` of shape (n_samples, n_features), ``target`` (-1 or 1), ``sample_domain`` (0 to
        n_domains - 1), ``feature_names`` and ``DESCR``.

    See Also
    --------
    load_heart : Real data from four hospitals.

    References
    ----------
    A. Wu, "Domain generalization via domain-based covariance minimization".

    Examples
    --------
    >>> from domainwise.datasets import make_synthetic
    >>> domains = make_synthetic(eta=0.1, n_domains=3, random_state=0)
    >>> domains.data.shape[1], sorted(set(domains.sample_domain.tolist()))
    (10, [0, 1, 2])
    """
    check_arguments("make_synthetic", _CONSTRAINTS, **locals())
    rng = check_random_state(random_state)
    b1, b2 = rng.standard_normal((2, n_features))
    domain_sizes = np.maximum(rng.poisson(n_per_domain, size=n_domains), _MIN_ROWS)
    domain_rows = []
    for domain_size in domain_sizes:
        # If the entries of G (p x p) are standard normal, eta GG' is Wishart(eta I, p).
        factor = np.sqrt(eta) * rng.standard_normal((n_features, n_features))
        domain_rows.append(rng.standard_normal((domain_size, n_features)) @ factor.T)
    data = np.vstack(domain_rows)
    e1, e2 = rng.standard_normal((2, len(data)))
    description = (_FOLDER / "synthetic.txt").read_text(encoding="utf-8")
    decision_values = np.sign(data @ b1 + e1) * np.log(np.abs(data @ b2 + e2 + c))
    return Bunch(
        data=data,
        target=np.where(decision_values > 0, 1, -1),
        sample_domain=np.repeat(np.arange(n_domains), domain_sizes),
        feature_names=[f"x{j}" for j in range(n_features)],
        DESCR=description.format(
            n_domains=n_domains, n_rows=len(data), n_features=n_features, eta=eta, c=c
        ),
    )


def load_heart(*, as_frame: bool = False) -> Bunch:
    """Heart disease: patients with (1) and without (0) disease in 4 hospitals; 13 features.

    Missing values are NaN. Cholesterol values (``chol``) of 0 also stand for missing values: all
    values from Switzerland, and 49 from the VA hospital.

    Parameters
    ----------
    as_frame : bool, default=False
        Whether to return pandas objects instead of arrays. If True, ``frame`` contains all columns
        of the file.

    Returns
    -------
    Bunch
        ``data`` of shape (920, 13), ``target``, ``sample_domain`` (hospital), ``feature_names`` and
        the description ``DESCR``.

    See Also
    --------
    make_synthetic : Simulated domains.

    References
    ----------
    A. Janosi, W. Steinbrunn, M. Pfisterer, R. Detrano (1989), Heart Disease, UCI Machine Learning
    Repository, https://doi.org/10.24432/C52P4X (CC BY 4.0).

    Examples
    --------
    >>> from domainwise.datasets import load_heart
    >>> heart = load_heart()
    >>> heart.data.shape
    (920, 13)
    >>> sorted(set(heart.sample_domain.tolist()))
    ['cleveland', 'hungarian', 'switzerland', 'va']
    """
    check_arguments("load_heart", as_frame=as_frame)
    with needs_extra("load_heart", "data"):
        import pandas as pd
    table = pd.read_csv(_FOLDER / "heart_hospitals.csv.gz")
    data = table.drop(columns=["domain", "label"]).astype(float)
    target, domain = table["label"], table["domain"].rename("sample_domain")
    description = (_FOLDER / "heart_hospitals.txt").read_text(encoding="utf-8")
    content = {"feature_names": list(data.columns), "DESCR": description}
    if as_frame:
        return Bunch(data=data, target=target, sample_domain=domain, frame=table, **content)
    # Fixed-width strings can be sorted, and are the same with every pandas version.
    domain = domain.to_numpy().astype(str)
    return Bunch(data=data.to_numpy(), target=target.to_numpy(), sample_domain=domain, **content)
