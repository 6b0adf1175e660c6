"""A whole grid of DCM models on one split, for little more than one fit (theory 3).

``a`` and the eigenvalues do not depend on the ridge, and the label space not on epsilon or the
weight: for one kernel, one product K Q serves all of them, each ridge needs one solve with a few
columns, and everything else is small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from sklearn.base import clone

from domainwise.arrays import Array
from domainwise.backends import backend_of
from domainwise.checks.inputs import Labels
from domainwise.gram.tiles import cross_product
from domainwise.kernels.functions import Kernel
from domainwise.labels.factors import LabelSpace, RowLabels, joint_basis, label_factor
from domainwise.methods.components import CONTINUOUS_CUT, Components, standardise
from domainwise.methods.contract import Gram, Matrix
from domainwise.methods.pencils import dcm_scores
from domainwise.search.heads import quick_head

#: A score needs fewer digits than a model: solves on the path stop at this residual.
PATH_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Grid:
    """Values to combine for one gamma; points come in the order of ``points``."""

    conditionals: Sequence[bool]
    epsilons: Sequence[float]
    domain_weights: Sequence[float]
    ridges: Sequence[float]

    def points(self) -> list[dict[str, Any]]:
        """Return every combination as keyword arguments of an estimator."""
        names = ("conditional", "epsilon", "domain_weight", "ridge")
        values = (self.conditionals, self.epsilons, self.domain_weights, self.ridges)
        return [dict(zip(names, point, strict=True)) for point in product(*values)]


def projected_path(fold: Any, grid: Grid) -> Iterator[tuple[Array, Array]]:
    """Yield projected training and test rows at each point of the grid, in its order.

    A fold has the operator of its training rows and their label space, ``gram(conditional)``, and
    projects training and test rows by coefficients with their image under K, ``project``.
    Components have unit variance on the training rows. Where fewer than its template's
    ``n_components`` are informative, those are taken.
    """
    for conditional in grid.conditionals:
        gram, space = fold.gram(conditional)
        n = gram.n_samples
        assert space.target is not None
        features = [space.target] if space.domain is None else [space.target, space.domain]
        basis = joint_basis(*(label_factor(part, n, 0.0) for part in features))
        Q = gram.lift(basis)
        KQ = gram.product(Q)
        G = gram.inner(Q, KQ)
        directions = [
            _directions(fold, gram, space, basis, G, *point)
            for point in product(grid.epsilons, grid.domain_weights)
        ]
        # All directions of the path lie in few dimensions: solve for a basis of these.
        U, s, _ = np.linalg.svd(np.hstack(directions), full_matrices=False)
        U = U[:, s > gram.tolerance * s[0]]
        V, KV = gram.combine(Q, U), gram.combine(KQ, U)
        rows = _projected(fold, gram, V, KV, grid.ridges)
        for a in directions:
            for train, test in rows:
                coordinates = U.T @ a
                Z = train @ coordinates
                size = Z.std(axis=0)
                alive = size > gram.tolerance * max(float(size.max(initial=0.0)), 1e-300)
                yield Z[:, alive] / size[alive], (test @ coordinates)[:, alive] / size[alive]


def _directions(
    fold: Any, gram: Gram, space: LabelSpace, basis: Array, G: Array, epsilon: float, weight: float
) -> Array:
    """Score vectors of one (epsilon, weight), each of unit length."""
    n = gram.n_samples
    assert space.target is not None
    Y = basis.T @ label_factor(space.target, n, epsilon)
    D = Y[:, :0]
    if space.domain is not None and weight > 0:
        D = basis.T @ label_factor(space.domain, n, epsilon)
    scores = dcm_scores(G, Y, D, weight, gram.tolerance)
    m = max(scores.n_informative, 1)
    if fold.template.n_components is not None:
        m = min(m, fold.template.n_components)
    elif fold.target.values is not None and scores.n_informative:
        m = int((scores.mu > CONTINUOUS_CUT * scores.mu[0]).sum())
    a = scores.a[:, :m]
    return np.asarray(a / np.linalg.norm(a, axis=0))


def _projected(
    fold: Any, gram: Gram, V: Matrix, KV: Matrix, ridges: Sequence[float]
) -> list[tuple[Array, Array]]:
    """Training and test rows along the directions V for each ridge, in one pass over either."""
    shifts = [gram.n_samples * ridge for ridge in ridges if not np.isinf(ridge)]
    solutions = iter(gram.solve_shifts(V, shifts))
    duals, images = [], []
    for ridge in ridges:
        dual, image = V, KV
        if not np.isinf(ridge):
            found = next(solutions)
            dual, image = found.X, found.image
        duals.append(dual)
        images.append(image)
    train, test = fold.project(gram, gram.hstack(duals), gram.hstack(images))
    n = len(ridges)
    return list(zip(np.hsplit(train, n), np.hsplit(test, n), strict=True))


@dataclass(frozen=True)
class RowFold:
    """A split whose training rows are at hand; the template has all arguments but the grid's."""

    template: Any
    X: Array
    y: Array
    X_test: Array
    target: Labels | None
    domain: Labels | None

    def fitted(self, head: Any, Z: Array) -> Any:
        """Fit a predictor to projected training rows."""
        return quick_head(head).fit(Z, self.y)


class ExactFold(RowFold):
    """A split for the exact family."""

    @cached_property
    def kernel(self) -> Kernel:
        """Kernel with its gamma."""
        return self.template._resolve_kernel(backend_of(self.X), self.X)

    @cached_property
    def _operator(self) -> Any:
        """What holds the matrix, for whatever labels."""
        labels = RowLabels(LabelSpace(len(self.X)))
        return self.template._gram(backend_of(self.X), self.X, self.kernel, labels)[0]

    def gram(self, conditional: bool) -> tuple[Gram, LabelSpace]:
        """Return the operator of the training rows and their label space."""
        if conditional != self.template.conditional:
            self.template.set_params(conditional=conditional)
        rows = backend_of(self.X), self.X
        labels = self.template._label_rows(*rows, self.target, self.domain)
        gram = copy(self._operator)
        gram.labels = labels
        return gram, labels.space

    def project(self, gram: Any, dual: Array, image: Array) -> tuple[Array, Array]:
        """Training rows are at hand; test rows take one pass over the cross kernel."""
        dual = dual - dual.mean(axis=0)
        rows = self.kernel.prepare(self.X)
        return image, cross_product(self.kernel, self.X_test, rows, dual) - gram.offset(dual)


def projections(
    template: Any,
    candidates: Sequence[dict[str, Any]],
    X: Array,
    y: Array,
    X_test: Array,
    target: Labels | None,
    domain: Labels,
) -> list[tuple[Array, Array]]:
    """Projected training and test rows of exact candidates with a common kernel."""
    models = [clone(template).set_params(**arguments) for arguments in candidates]
    fold = ExactFold(models[0], X, y, X_test, target, domain if template._uses_domain else None)
    gram, space = fold.gram(template.conditional)
    found: dict[int, Components] = {}
    # Those who ask for most components first: the others can have some of them.
    for i in sorted(range(len(models)), key=lambda i: -(models[i].n_components or 0)):
        solved = models[i]._solve(gram, space, target is not None and target.values is not None)
        asked = models[i].n_components is not None
        found[i] = standardise(gram, solved, space, warn=asked)
    each = [found[i] for i in range(len(models))]
    dual, image = (gram.hstack([getattr(c, n) for c in each]) for n in ("dual", "values"))
    cuts = np.cumsum([component.values.shape[1] for component in each])[:-1]
    parts = (np.hsplit(rows, cuts) for rows in fold.project(gram, dual, image))
    return list(zip(*parts, strict=True))


@dataclass(frozen=True)
class FastFold(RowFold):
    """A split for the Nystrom family: both sets of rows are projected from landmarks."""

    def __post_init__(self) -> None:
        template, of_rows = self.template, (backend_of(self.X), self.X, self.target, self.domain)
        template._begin(*of_rows)
        template._sums = template._sum_rows(*of_rows)

    def gram(self, conditional: bool) -> tuple[Gram, LabelSpace]:
        """Return the operator of the training rows and their label space."""
        self.template.set_params(conditional=conditional)
        gram = self.template._finalized()[0]
        return gram, gram.labels

    def project(self, gram: Any, dual: Array, image: Array) -> tuple[Array, Array]:
        """Project both sets of rows from the landmarks."""
        weights = gram.weights(dual)
        train, test = (self.template._map.values(rows, weights) for rows in (self.X, self.X_test))
        return train - train.mean(axis=0), test - train.mean(axis=0)
