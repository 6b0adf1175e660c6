"""The paper's figure, and the spectrum behind it, as rows of the results file.

Projections of the synthetic data on two components of COIR, DICA and DCM: n ~ Poisson(500) rows per
domain in 5 dimensions, γ = 1 (theory 10.2). A binary target determines one direction (theory 4), so
the second component is the leading principal direction that neither target nor domain explains.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils import Bunch
from threadpoolctl import threadpool_limits

from domainwise.arrays import Array
from domainwise.datasets import make_synthetic
from domainwise.estimators import COIR, DCM, DICA
from domainwise.jobs.runner import Row
from domainwise.paper.methods import delta_kernel
from domainwise.paper.trials import seed_of
from domainwise.reference import algorithm1

GAMMA = 1.0
EPSILON = 1e-3
RIDGE = 1e-3
#: Points stored per panel; all rows are used for fitting.
SHOWN_TRAIN = 700
SHOWN_TEST = 250


@dataclass(frozen=True)
class ProjectionJob:
    """The panels of one method: training rows and three unseen domains."""

    method: str
    rows_per_domain: int
    root_seed: int
    cost: float = 6.0

    def run(self) -> list[Row]:
        """Fit on seven domains and project all ten."""
        data = _draw(self, "figure", n_features=5)
        source = data.sample_domain < 7
        with threadpool_limits(limits=1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            X, y, d = data.data[source], data.target[source], data.sample_domain[source]
            model = _model(self.method, len(X)).fit(X, y, sample_domain=d)
            panels = [_panel("source domains", model.transform(X), y, SHOWN_TRAIN, d)]
            for number, name in enumerate(range(7, 10), 1):
                rows = data.sample_domain == name
                Z = model.transform(data.data[rows])
                panels.append(_panel(f"unseen {number}", Z, data.target[rows], SHOWN_TEST))
        return [
            {
                "kind": "projection",
                "method": self.method,
                "rows_per_domain": self.rows_per_domain,
                "n_informative": int(model.n_informative_),
                "panels": panels,
            }
        ]


@dataclass(frozen=True)
class SpectrumJob:
    """Every eigenvalue of Algorithm 1 on one draw of the synthetic table's first row."""

    root_seed: int
    rows_per_domain: int = 100
    cost: float = 5.0

    def run(self) -> list[Row]:
        """Solve the dense problem for all components."""
        data = _draw(self, "spectrum")
        source = data.sample_domain < 7
        X, y, d = data.data[source], data.target[source], data.sample_domain[source]
        with threadpool_limits(limits=1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            K = rbf_kernel(X, gamma=0.1)
            labels = delta_kernel(y, y), delta_kernel(d, d)
            result = algorithm1(K, *labels, epsilon=EPSILON, n_components=_rank(K))
        return [
            {
                "kind": "spectrum",
                "method": "algorithm1",
                "n_classes": len(np.unique(y)),
                "n_domains": len(np.unique(d)),
                "eigenvalues": [round(float(value), 10) for value in result.eigenvalues],
            }
        ]


def plan_figures(
    done: Iterable[Row], *, quick: bool, root_seed: int
) -> list[ProjectionJob | SpectrumJob]:
    """Jobs for the figure and the spectrum that are still to do."""
    finished = {(row["kind"], row["method"]) for row in done}
    rows = 150 if quick else 500
    jobs: list[ProjectionJob | SpectrumJob] = [
        ProjectionJob(method, rows, root_seed)
        for method in ("coir", "dica", "dcm")
        if ("projection", method) not in finished
    ]
    if ("spectrum", "algorithm1") not in finished:
        jobs.append(SpectrumJob(root_seed, 40 if quick else 100))
    return jobs


def _draw(job: ProjectionJob | SpectrumJob, name: str, **options: Any) -> Bunch:
    """Ten synthetic domains, the first seven of them sources."""
    rng = np.random.default_rng(seed_of(job.root_seed, name))
    seed = int(rng.integers(2**31 - 1))
    return make_synthetic(0.1, n_per_domain=job.rows_per_domain, random_state=seed, **options)


def _model(method: str, n_rows: int) -> Any:
    shared: dict[str, Any] = {"n_components": 2, "gamma": GAMMA, "epsilon": EPSILON}
    if method == "dica":
        return DICA(lam=n_rows * RIDGE, solver="dense", **shared)
    return {"coir": COIR, "dcm": DCM}[method](ridge=RIDGE, **shared)


def _panel(title: str, Z: Array, y: Array, most: int, domain: Array | None = None) -> Row:
    shown = np.unique(np.linspace(0, len(Z) - 1, min(len(Z), most)).astype(int))
    if Z.shape[1] < 2:
        Z = np.column_stack([Z, np.zeros(len(Z))])
    panel: Row = {
        "title": title,
        "n_rows": len(Z),
        "x": Z[shown, 0].round(4).tolist(),
        "y": Z[shown, 1].round(4).tolist(),
        "target": y[shown].tolist(),
    }
    if domain is not None:
        panel["domain"] = domain[shown].tolist()
    return panel


def _rank(K: Array) -> int:
    values = np.linalg.eigvalsh(K - K.mean(axis=0) - K.mean(axis=0)[:, None] + K.mean())
    return int(np.sum(values > len(K) * np.finfo(np.float64).eps * values[-1]))
