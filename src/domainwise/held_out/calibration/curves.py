"""Compute probabilities from decision values, and adapt them to the class shares of a domain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from domainwise.base.arrays import Array, ArrayLike, MaybeArray
from domainwise.base.inputs import check_sample_domain, real_numbers

#: Maximum number of iterations of Newton's method, and of EM for class shares. They stop earlier if
#: the objective (Newton) or every share (EM) changes by less than the tolerance.
MAX_NEWTON_STEPS, MAX_EM_STEPS, TOLERANCE = 50, 1000, 1e-8
#: Weights of the penalties on the slope and on the biases; the rows have an average weight of 1. A
#: larger penalty on biases would make the probabilities of rare classes too large.
PENALTY_ROWS, BIAS_PENALTY_ROWS = 1.0, 0.1
#: Smallest probability for which a log loss is computed.
SMALLEST = 1e-12


@dataclass(frozen=True)
class Curve:
    """A curve that maps decision values to probabilities ``softmax(slope * values + bias)``."""

    slope: float  #: never negative, even if a negative slope would fit better
    bias: Array  #: one value per class

    def probabilities(self, values: Array) -> Array:
        """Return probabilities of shape (n, n_classes)."""
        return np.asarray(softmax(self.slope * values + self.bias, axis=1))


def class_columns(values: Array) -> Array:
    """Return one column of values per class; a single column becomes two with opposite signs."""
    values = values.reshape(len(values), -1)
    return np.column_stack([-values, values]) if values.shape[1] == 1 else values


def equal_weights(domain_codes: Array, sample_weight: Array | None = None) -> Array:
    """Return row weights that sum to 1, equally divided among domains.

    Within a domain, they are proportional to ``sample_weight``.
    """
    row_weights = np.ones(len(domain_codes)) if sample_weight is None else sample_weight
    weights = row_weights / np.bincount(domain_codes, row_weights)[domain_codes]
    return np.asarray(weights / weights.sum())


def fit_curve(
    values: Array, class_codes: Array, weights: Array, *, sample_weight: Array | None = None
) -> tuple[Curve, float]:
    """Fit a curve by penalized maximum likelihood, and return it with its weighted log loss.

    ``values``, of shape (n, n_classes), are log-probabilities or decision values. If they predict
    worse than the class shares, the curve returns the shares for every row. ``weights`` are those
    of :func:`equal_weights`; ``sample_weight`` says how often rows count.
    """
    values = values - values.mean(axis=1, keepdims=True)
    weights = weights / weights.sum()
    n_rows, n_classes = values.shape
    mean_squares = np.average(values**2, axis=0, weights=sample_weight)
    root_mean_square = float(np.sqrt(mean_squares.mean()))
    scale = root_mean_square or 1.0
    total = n_rows if sample_weight is None else sample_weight.sum()
    penalties = np.r_[PENALTY_ROWS, np.full(n_classes, BIAS_PENALTY_ROWS)] / total
    # The design has one row per class, so that NumPy's sums over classes are fast.
    design, row_indices = np.ascontiguousarray(values.T, dtype=float) / scale, np.arange(n_rows)
    # The first parameter is the slope, the others are the biases.
    initial_parameters = np.concatenate([[1.0], np.zeros(n_classes)])
    parameters, objective = initial_parameters, np.inf
    step = np.zeros(n_classes + 1)
    for _ in range(MAX_NEWTON_STEPS):
        step_size = 1.0
        while True:
            trial_parameters = parameters - step_size * step
            # scipy.special.log_softmax takes twice as long, mostly for checks.
            logits = trial_parameters[0] * design + trial_parameters[1:, None]
            logits -= logits.max(axis=0)
            p = np.exp(logits)
            p_sums = p.sum(axis=0)
            trial_objective = weights @ (np.log(p_sums) - logits[class_codes, row_indices])
            trial_objective += 0.5 * penalties @ (trial_parameters - initial_parameters) ** 2
            if trial_objective <= objective + TOLERANCE or step_size < 1e-4:
                break
            step_size /= 2
        has_converged = objective - trial_objective < TOLERANCE
        parameters, objective = trial_parameters, trial_objective
        if has_converged:
            break
        deviations = parameters - initial_parameters
        step = _newton_step(design, p / p_sums, class_codes, weights, deviations, penalties)
    slope = float(parameters[0]) / scale if root_mean_square else 0.0
    curve = Curve(slope, parameters[1:] - parameters[1:].mean())
    if slope <= 0.0:
        shares = np.bincount(class_codes, weights, minlength=n_classes)
        curve = Curve(0.0, np.log(np.maximum(shares, 1e-6)))
    true_class_p = curve.probabilities(values)[row_indices, class_codes]
    return curve, -float(weights @ np.log(np.maximum(true_class_p, 1e-300)))


def fit_domain_curve(
    values: Array, class_codes: Array, domains: Array, sample_weight: Array | None
) -> Curve:
    """Fit a curve to rows from held-out domains, which have equal weights."""
    domain_codes = np.unique(domains, return_inverse=True)[1]
    weights = equal_weights(domain_codes, sample_weight=sample_weight)
    return fit_curve(values, class_codes, weights, sample_weight=sample_weight)[0]


#: Maximum number of groups of domains that :func:`improves` holds out.
MAX_GROUPS = 10


def improves(
    values: Array,
    class_codes: Array,
    domain_codes: Array,
    curve: Curve,
    sample_weight: Array | None = None,
) -> bool:
    """Return whether a curve fitted to other domains has a lower log loss than ``curve``.

    All domains have the same weight. With a single domain, the result is False.
    """
    if len(np.unique(domain_codes)) < 2:
        return False
    group_codes, differences = domain_codes % MAX_GROUPS, np.zeros(len(values))
    for group_code in np.unique(group_codes):
        test = group_codes == group_code
        row_weights = None if sample_weight is None else sample_weight[~test]
        rows = values[~test], class_codes[~test], domain_codes[~test], row_weights
        true_classes = np.arange(test.sum()), class_codes[test]
        new_p, old_p = (
            np.maximum(c.probabilities(values[test])[true_classes], SMALLEST)
            for c in (fit_domain_curve(*rows), curve)
        )
        differences[test] = np.log(old_p / new_p)
    return bool(equal_weights(domain_codes, sample_weight) @ differences < 0.0)


def _newton_step(
    design: Array, p: Array, class_codes: Array, weights: Array, deviations: Array, penalties: Array
) -> Array:
    """Return the Newton step for slope and biases.

    ``design`` and ``p`` have one row per class. ``deviations`` are the parameters minus the values
    toward which ``penalties`` shrink them.
    """
    weighted_p = weights * p
    residuals = weighted_p.copy()
    residuals[class_codes, np.arange(len(class_codes))] -= weights
    gradient = np.concatenate([[np.vdot(residuals, design)], residuals.sum(axis=1)])
    weighted_values = weighted_p * design
    row_means = np.sum(p * design, axis=0)
    hessian = np.empty((len(deviations), len(deviations)))
    hessian[0, 0] = np.vdot(weighted_values, design) - weights @ row_means**2
    hessian[0, 1:] = hessian[1:, 0] = weighted_values.sum(axis=1) - weighted_p @ row_means
    hessian[1:, 1:] = np.diag(weighted_p.sum(axis=1)) - weighted_p @ p.T
    hessian[np.diag_indices(len(hessian))] += penalties
    return np.asarray(np.linalg.solve(hessian, gradient + penalties * deviations))


def adapt_class_shares(
    probabilities: ArrayLike,
    shares: ArrayLike,
    sample_domain: MaybeArray = None,
    *,
    prior_rows: float = 20.0,
) -> Array:
    r"""Re-estimate class shares in each domain, and adapt probabilities to them.

    If the features of each class have the same distribution in all domains, and only class shares
    differ, the shares in a new domain can be estimated from unlabelled rows with the EM algorithm
    of Saerens, Latinne and Decaestecker. If the distributions differ as well, probabilities can
    become worse. Use this function only if it improves scores on held-out domains.

    Parameters
    ----------
    probabilities : array-like of shape (n_rows, n_classes)
        Probabilities predicted for the class shares of the source domains.
    shares : array-like of shape (n_classes,)
        Class shares of the source domains.
    sample_domain : array-like of shape (n_rows,), default=None
        The domain of each row. None treats all rows as one domain.
    prior_rows : float, default=20.0
        Strength of the prior: how many rows with the source shares are added to each domain.

    Returns
    -------
    adapted : ndarray of shape (n_rows, n_classes)

    See Also
    --------
    domainwise.SiteAdapter : Uses labels from the new domain instead.

    References
    ----------
    M. Saerens, P. Latinne and C. Decaestecker (2002), "Adjusting the outputs of a classifier to new
    a priori probabilities: a simple procedure", Neural Computation.

    Examples
    --------
    >>> import numpy as np
    >>> from domainwise.selection import adapt_class_shares
    >>> p = np.array([[0.9, 0.1]] * 70 + [[0.1, 0.9]] * 30)
    >>> adapt_class_shares(p, [0.5, 0.5], prior_rows=0).mean(axis=0).round(3).tolist()
    [0.75, 0.25]
    """
    p, source_shares = real_numbers(probabilities, "probabilities"), real_numbers(shares, "shares")
    if p.ndim != 2 or not (np.isfinite(p) & (p >= 0)).all() or not (p.sum(axis=1) > 0).all():
        problem = "at least one of these" if p.ndim == 2 else f"shape {p.shape}"
        raise ValueError(
            "probabilities must have shape (n_rows, n_classes), without NaN, infinite or negative "
            f"values, or rows of zeros; got {problem}. Pass the output of predict_proba."
        )
    is_usable = np.isfinite(source_shares) & (source_shares > 0)
    if source_shares.shape != p.shape[1:] or not is_usable.all():
        raise ValueError(
            f"shares must contain one positive value for each of the {p.shape[1]} columns of "
            f"probabilities; got {source_shares.tolist()}."
        )
    if not prior_rows >= 0:
        raise ValueError(f"prior_rows must be at least 0; got {prior_rows!r}.")
    source_shares = source_shares / source_shares.sum()
    domain_codes = check_sample_domain(sample_domain, len(p), "delta").codes
    for code in np.unique(domain_codes):
        is_in_domain = domain_codes == code
        adapted_p, new_shares = p[is_in_domain], source_shares
        for _ in range(MAX_EM_STEPS):
            adapted_p = p[is_in_domain] * (new_shares / source_shares)
            adapted_p /= adapted_p.sum(axis=1, keepdims=True)
            old_shares, new_shares = new_shares, adapted_p.sum(axis=0) + prior_rows * source_shares
            new_shares = new_shares / new_shares.sum()
            if np.abs(new_shares - old_shares).max() < TOLERANCE:
                break
        p[is_in_domain] = adapted_p
    return p
