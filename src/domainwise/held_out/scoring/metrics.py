"""Scores of predictions on unseen domains, and measures of how features depend on domains.

``hsic``, ``mmd`` and ``invariance_report`` evaluate only the upper triangles of N x N kernel
matrices, in square tiles. Memory is O(N) plus the size of a tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import gmean
from sklearn.utils.multiclass import type_of_target

from domainwise.algebra.gram import tiles
from domainwise.algebra.gram.tiles import upper_tiles
from domainwise.base import inputs
from domainwise.base.arguments import METRIC_CONSTRAINTS, check_arguments
from domainwise.base.arrays import Array
from domainwise.base.files import to_json


def g_mean_score(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    r"""Geometric mean of the classes' recalls.

    For a binary target this is :math:`\sqrt{\mathrm{TPR} \cdot \mathrm{TNR}}`; for C classes it
    is the C-th root of the product of the C recalls. Only classes that occur in ``y_true`` are
    included: with a single class, the score is the recall of this class. The score is 0 if all
    rows of at least one class are misclassified.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Class labels, of any type that can be sorted.
    y_pred : array-like of shape (n_samples,)
        Predicted class labels.

    Returns
    -------
    float
        Score between 0 and 1; larger is better.

    See Also
    --------
    worst_domain_score : Score on the worst domain.

    Examples
    --------
    >>> from domainwise.metrics import g_mean_score
    >>> g_mean_score([0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 1])  # sqrt(0.75 * 1)
    0.866...
    """
    truth = inputs.checked_labels(y_true, "y_true")
    predictions = inputs.checked_labels(y_pred, "y_pred")
    inputs.check_same_length(predictions, "y_pred", truth, "y_true")
    true_type, predicted_type = (inputs.type_of_label(y[0].item()) for y in (truth, predictions))
    if true_type != predicted_type:
        raise ValueError(
            f"y_pred contains labels of type {predicted_type}, but y_true contains labels of type "
            f"{true_type}. Convert both to the same type."
        )
    for name, labels in (("y_true", truth), ("y_pred", predictions)):
        target_type = type_of_target(labels, input_name=name)
        if target_type not in ("binary", "multiclass"):
            raise ValueError(
                f"{name} must contain class labels; got a target of type {target_type!r}. Pass "
                "classes, not probabilities or other numbers."
            )
    recalls = [np.mean(predictions[truth == label] == label) for label in np.unique(truth)]
    return float(gmean(recalls))


def worst_domain_score(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    sample_domain: ArrayLike,
    metric: Callable[[Array, Array], float],
    *,
    greater_is_better: bool = True,
) -> float:
    """Score on the domain for which the predictions are worst.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_outputs)
        True targets.
    y_pred : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Predictions, or decision values if ``metric`` expects them.
    sample_domain : array-like of shape (n_samples,)
        Domain of each row.
    metric : callable
        A function ``metric(y_true, y_pred)`` that returns a number, such as
        :func:`sklearn.metrics.accuracy_score` or :func:`g_mean_score`.
    greater_is_better : bool, default=True
        False for a loss such as :func:`sklearn.metrics.root_mean_squared_error`: the worst domain
        is then the one with the largest value.

    Returns
    -------
    float
        The smallest score (or the largest loss) over domains.

    Raises
    ------
    ValueError
        If the metric cannot be computed for a domain, or is not finite (for example, AUC in a
        domain with only one class). The message names the domain. Such domains are not omitted,
        because the score could then hide the worst domain.

    See Also
    --------
    g_mean_score : Geometric mean of the classes' recalls.

    Examples
    --------
    >>> from sklearn.metrics import accuracy_score, mean_absolute_error
    >>> from domainwise.metrics import worst_domain_score
    >>> worst_domain_score([0, 1, 0, 1], [0, 1, 0, 0], ["a", "a", "b", "b"], accuracy_score)
    0.5
    >>> worst_domain_score(
    ...     [1.0, 2.0], [1.0, 5.0], ["a", "b"], mean_absolute_error, greater_is_better=False
    ... )
    3.0
    """
    check_arguments("worst_domain_score", metric=metric, greater_is_better=greater_is_better)
    truth, predictions = inputs.label_array(y_true, "y_true"), inputs.label_array(y_pred, "y_pred")
    if len(np.atleast_1d(truth)) == 0:
        raise ValueError("y_true is empty. Pass at least one row.")
    inputs.check_same_length(predictions, "y_pred", truth, "y_true")
    domain_codes, domains = inputs.encode_labels(sample_domain, "sample_domain")
    inputs.check_same_length(domain_codes, "sample_domain", truth, "y_true")
    scores = []
    for code, domain in enumerate(domains.tolist()):
        is_in_domain = domain_codes == code
        domain_text = f"for domain {domain!r} ({is_in_domain.sum()} rows)"
        try:
            score = float(metric(truth[is_in_domain], predictions[is_in_domain]))
        except ValueError as error:
            raise ValueError(
                f"metric cannot be computed {domain_text}: {str(error).rstrip('.')}. Exclude this "
                "domain, or use another metric."
            ) from error
        if not np.isfinite(score):
            raise ValueError(
                f"metric is {score} {domain_text}. Exclude this domain, or use a metric that is "
                "defined for it."
            )
        scores.append(score)
    return min(scores) if greater_is_better else max(scores)


def hsic(
    A: ArrayLike,
    B: ArrayLike,
    *,
    kernel_a: str = "auto",
    kernel_b: str = "auto",
    gamma_a: float | str = "median",
    gamma_b: float | str = "median",
    normalize: bool = False,
    block_size: int = tiles.TILE_ROWS,
) -> float:
    r"""Hilbert-Schmidt independence criterion of two sets of variables (biased estimate).

    .. math:: \mathrm{HSIC}(A, B) = \frac{1}{N^2} \operatorname{tr}(H K_A H \, H K_B H)

    with :math:`H = I - 11^\top / N`. It is 0 if A or B is constant. With characteristic kernels,
    such as RBF and delta, it tends to 0 as N grows if and only if A and B are independent.

    Parameters
    ----------
    A, B : array-like of shape (n_samples, n_features) or (n_samples,)
        The two sets of variables, such as features, labels or domains.
    kernel_a, kernel_b : {"auto", "rbf", "linear", "delta"}, default="auto"
        "auto" is RBF for 2-D numeric arrays and 1-D continuous arrays, and delta (1 for equal
        labels, 0 otherwise) for other 1-D arrays.
    gamma_a, gamma_b : float or "median", default="median"
        Coefficient of RBF kernels. "median" means :math:`1 / (2\,\mathrm{median}(d)^2)`, where d
        are the non-zero distances between rows (with more than 2,000 rows, between 2,000 evenly
        spaced rows).
    normalize : bool, default=False
        Whether to divide by :math:`\sqrt{\mathrm{HSIC}(A, A)\,\mathrm{HSIC}(B, B)}` (centred
        kernel alignment). The result is then between 0 and 1, and comparable across scales and
        kernels. It is 0 if A or B is constant.
    block_size : int, default=1024
        Number of rows in a tile. Memory is O(N + block_size^2). Except for rounding, the result
        does not depend on ``block_size``.

    Returns
    -------
    float

    See Also
    --------
    mmd : Distances between domains.
    invariance_report : HSIC of features with targets and domains, and MMD between domains.

    References
    ----------
    A. Gretton, O. Bousquet, A. Smola and B. Schoelkopf (2005), "Measuring statistical dependence
    with Hilbert-Schmidt norms", ALT.

    Examples
    --------
    >>> import numpy as np
    >>> from domainwise.metrics import hsic
    >>> A = np.array([[0.0], [0.1], [3.0], [3.1]])
    >>> round(hsic(A, ["u", "u", "v", "v"], normalize=True), 2)
    1.0
    >>> round(hsic(A, ["u", "v", "u", "v"], normalize=True), 2)
    0.0
    """
    arguments = {name: value for name, value in locals().items() if name not in ("A", "B")}
    check_arguments("hsic", METRIC_CONSTRAINTS, **arguments)
    evaluate_a, n_a = tiles.kernel_tile(A, "A", kernel_a, gamma_a)
    evaluate_b, n_b = tiles.kernel_tile(B, "B", kernel_b, gamma_b)
    if n_a != n_b:
        raise ValueError(f"B has {n_b} rows, but A has {n_a}. Pass the same rows in A and B.")
    inner_products = tiles.centred_inner_products([evaluate_a, evaluate_b], n_a, block_size)
    if normalize:
        return float(tiles.alignment(inner_products, 0, 1))
    return float(max(inner_products[0, 1], 0.0) / n_a**2)


def mmd(
    Z: ArrayLike,
    sample_domain: ArrayLike,
    *,
    gamma: float | str = "median",
    block_size: int = tiles.TILE_ROWS,
) -> NDArray[np.float64]:
    r"""Maximum mean discrepancy between each pair of domains, with an RBF kernel.

    Entry (i, j) is the distance between the mean embeddings of domains i and j in kernel space,

    .. math:: \| \hat\mu_i - \hat\mu_j \| = \sqrt{
        \overline{k}_{ii} + \overline{k}_{jj} - 2\,\overline{k}_{ij}}

    where :math:`\overline{k}_{ij}` is the mean of the kernel over all pairs of a row in i and a row
    in j. The estimate (a V-statistic) is biased: never negative, and larger for small domains.
    All pairs of domains have the same gamma, so the entries can be compared.

    Parameters
    ----------
    Z : array-like of shape (n_samples, n_features)
        Features, for example the output of ``transform``.
    sample_domain : array-like of shape (n_samples,)
        Domain of each row.
    gamma : float or "median", default="median"
        Coefficient of the RBF kernel; see :func:`hsic`.
    block_size : int, default=1024
        Number of rows in a tile; see :func:`hsic`.

    Returns
    -------
    ndarray of shape (n_domains, n_domains)
        Symmetric matrix with a zero diagonal. Its rows are in the order of
        ``numpy.unique(sample_domain)``. With one domain, it is ``[[0.]]``.

    See Also
    --------
    hsic : Dependence between two sets of variables.

    References
    ----------
    A. Gretton, K. Borgwardt, M. Rasch, B. Schoelkopf and A. Smola (2012), "A kernel two-sample
    test", Journal of Machine Learning Research.

    Examples
    --------
    >>> import numpy as np
    >>> from domainwise.metrics import mmd
    >>> Z = np.array([[0.0], [1.0], [0.0], [1.0], [5.0], [6.0]])
    >>> mmd(Z, ["a", "a", "b", "b", "c", "c"], gamma=0.5).round(3)
    array([[0.   , 0.   , 1.267],
           [0.   , 0.   , 1.267],
           [1.267, 1.267, 0.   ]])
    """
    check_arguments("mmd", METRIC_CONSTRAINTS, gamma=gamma, block_size=block_size)
    domain_codes, domains = inputs.encode_labels(sample_domain, "sample_domain")
    evaluate_tile, n_samples = tiles.kernel_tile(Z, "Z", "rbf", gamma)
    inputs.check_length(len(domain_codes), "sample_domain", n_samples, "Z")
    # A row has weight 1 / (rows in its domain), so that sums over tiles are means over pairs.
    weights = np.zeros((n_samples, len(domains)))
    weights[np.arange(n_samples), domain_codes] = 1.0 / np.bincount(domain_codes)[domain_codes]
    kernel_means = np.zeros((len(domains), len(domains)))
    for rows, columns in upper_tiles(n_samples, block_size):
        tile_sums = weights[rows].T @ (evaluate_tile(rows, columns) @ weights[columns])
        kernel_means += tile_sums if rows == columns else tile_sums + tile_sums.T
    within_means = np.diag(kernel_means)
    squared_distances = within_means[:, None] + within_means - (kernel_means + kernel_means.T)
    np.fill_diagonal(squared_distances, 0.0)
    return np.asarray(np.sqrt(np.maximum(squared_distances, 0.0)))


@dataclass(frozen=True)
class InvarianceReport:
    """Dependence of features on domains and on the target.

    Attributes
    ----------
    domain_dependence : float
        Normalized HSIC (0 to 1) of the features with the domains; smaller means more invariant. It
        is 0 if there is only one domain.
    target_dependence : float or None
        Normalized HSIC of the features with the target; larger is better. None without a target.
    mmd : ndarray of shape (n_domains, n_domains)
        Distances between domains; see :func:`mmd`.
    mean_mmd, max_mmd : float
        Mean and largest distance over pairs of different domains; 0 if there is only one domain.
    domain_mmd : ndarray of shape (n_domains,)
        Mean distance of each domain to the others; it is large for an outlying domain.
    domains : ndarray of shape (n_domains,)
        The domains, in the order of the rows of ``mmd``.
    """

    domain_dependence: float
    target_dependence: float | None
    mmd: NDArray[np.float64]
    mean_mmd: float
    max_mmd: float
    domain_mmd: NDArray[np.float64]
    domains: Array

    def to_dict(self) -> dict[str, Any]:
        """Return the report as numbers, lists and strings, which can be written as JSON.

        Returns
        -------
        values : dict
            Attributes by name.
        """
        report: dict[str, Any] = to_json(self, lambda number: number)
        return report


def invariance_report(
    Z: ArrayLike,
    y: ArrayLike | None,
    sample_domain: ArrayLike,
    *,
    gamma: float | str = "median",
    target_gamma: float | str = "median",
    block_size: int = tiles.TILE_ROWS,
) -> InvarianceReport:
    """Measure how much features depend on the domain and on the target.

    Good features for unseen domains have a small ``domain_dependence``, small distances between
    domains and a large ``target_dependence``. With ``gamma="median"``, the scale of Z does not
    matter, so representations of different scales can be compared.

    Parameters
    ----------
    Z : array-like of shape (n_samples, n_features)
        Features, for example the output of ``transform``.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs), or None
        Target. The delta kernel is used for classes, and RBF for a continuous target.
    sample_domain : array-like of shape (n_samples,)
        Domain of each row. With only one domain, ``domain_dependence`` and all distances are 0.
    gamma, target_gamma : float or "median", default="median"
        Coefficients of the RBF kernels for features and for a continuous target; see :func:`hsic`.
    block_size : int, default=1024
        Number of rows in a tile; see :func:`hsic`.

    Returns
    -------
    InvarianceReport

    See Also
    --------
    hsic : Dependence between two sets of variables.
    mmd : Distances between domains.

    Examples
    --------
    >>> import numpy as np
    >>> from domainwise.metrics import invariance_report
    >>> Z = np.array([[0.0], [0.1], [3.0], [3.1]])
    >>> report = invariance_report(Z, [0, 0, 1, 1], ["a", "b", "a", "b"])
    >>> round(report.target_dependence, 2), round(report.domain_dependence, 2)
    (1.0, 0.0)
    """
    arguments = {"gamma": gamma, "target_gamma": target_gamma, "block_size": block_size}
    check_arguments("invariance_report", METRIC_CONSTRAINTS, **arguments)
    domain_codes, domains = inputs.encode_labels(sample_domain, "sample_domain")
    evaluate_z, n_samples = tiles.kernel_tile(Z, "Z", "rbf", gamma)
    inputs.check_length(len(domain_codes), "sample_domain", n_samples, "Z")
    tile_functions = [evaluate_z, tiles.delta_tile(domain_codes)]
    if y is not None:
        evaluate_y, n_target_rows = tiles.kernel_tile(y, "y", "auto", target_gamma)
        inputs.check_length(n_target_rows, "y", n_samples, "Z")
        tile_functions.append(evaluate_y)
    inner_products = tiles.centred_inner_products(tile_functions, n_samples, block_size)
    distances = mmd(Z, domain_codes, gamma=gamma, block_size=block_size)
    domain_mmd = distances.sum(axis=1) / max(len(domains) - 1, 1)
    return InvarianceReport(
        domain_dependence=tiles.alignment(inner_products, 0, 1),
        target_dependence=None if y is None else tiles.alignment(inner_products, 0, 2),
        mmd=distances,
        mean_mmd=float(domain_mmd.mean()),
        max_mmd=float(distances.max()),
        domain_mmd=domain_mmd,
        domains=domains,
    )
