"""What a method finds, and how it is brought to scale and sign (theory 11.3)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.labels.factors import LabelSpace
from domainwise.methods.contract import Gram, Thin

CONSTANT = (
    "the projection is constant: the rows of X do not differ as far as this kernel tells "
    "(check gamma and the scale of the features)"
)


@dataclass
class Components:
    """What a method found.

    Attributes
    ----------
    dual : thin
        Coefficients; a row x projects to ``k(x)'dual``, centred.
    values : thin
        Projected training rows, ``K dual``.
    eigenvalues : ndarray
    n_informative : int
        How many of the problem's eigenvalues tell targets apart.
    info : dict
    floor : float or ndarray
        Standard deviation up to which a component's values are rounding.
    """

    dual: Thin
    values: Thin
    eigenvalues: Array
    n_informative: int
    info: dict[str, Any] = field(default_factory=dict)
    floor: float | Array = 0.0


def standardise(
    gram: Gram, found: Components, labels: LabelSpace, *, warn: bool = True
) -> Components:
    """Give components unit variance and their sign, and drop those without variance.

    ``warn`` says whether dropping one is worth a warning: the caller asked for their number.
    """
    size = norms(gram, found.values) / np.sqrt(gram.n_samples)
    alive = size > found.floor
    if not alive.any():
        raise ValueError(CONSTANT)
    if warn and not alive.all():
        warnings.warn(
            f"{int((~alive).sum())} of {len(alive)} components have no variance (the kernel matrix "
            "has too low a rank) and were dropped",
            UserWarning,
            stacklevel=2,
        )
    scale = np.eye(len(size))[:, alive] / np.where(alive, size, 1.0)[alive]
    dual, values = gram.combine(found.dual, scale), gram.combine(found.values, scale)
    signs = _signs(gram, dual, values, labels)
    flip = np.diag(signs)
    return Components(
        gram.combine(dual, flip),
        gram.combine(values, flip),
        found.eigenvalues[alive],
        found.n_informative,
        found.info,
    )


def _signs(gram: Gram, dual: Thin, values: Thin, labels: LabelSpace) -> Array:
    anchors = gram.anchors(dual, values)
    signs = np.sign(anchors[np.abs(anchors).argmax(axis=0), np.arange(anchors.shape[1])])
    if labels.sign is not None:
        direction = labels.sign[:, None]
        norm = float(np.linalg.norm(direction)) * np.sqrt(gram.n_samples)
        if norm > 0:
            correlation = gram.inner(gram.lift(direction), values)[0] / norm
            signs = np.where(np.abs(correlation) >= 1e-6, np.sign(correlation), signs)
    return np.where(signs == 0, 1.0, signs)


def norms(gram: Gram, V: Thin) -> Array:
    """Length of each column of a thin."""
    return np.sqrt(np.maximum(np.diagonal(gram.inner(V, V)), 0.0))


def relative_floor(gram: Gram, values: Thin) -> float:
    """Standard deviation that is rounding next to the largest component's."""
    size = norms(gram, values).max(initial=0.0) / np.sqrt(gram.n_samples)
    return float(1e-2 * gram.tolerance * size)
