"""Compare methods on unseen domains, with parameters chosen on the source domains.

This script runs nested leave-domains-out cross-validation with the methods of `domainwise
evaluate`: every domain is held out in turn (in at most ten groups), preprocessing and parameters
are fitted to the other domains only, and every held-out domain is scored separately. Methods are
trained on at most 1,000 rows; at most 300 rows of a domain are scored.

    python benchmarks/selection.py run development     facies, GvHD, Parkinson's, synthetic
    python benchmarks/selection.py run confirmation    LandMine, oil wells, CyTOF, HIPC: once
    python benchmarks/selection.py path                compares a grid of DCMCV with a single fit
    python benchmarks/selection.py report              writes SELECTION.md

Results are written to --out as JSON lines; an interrupted run continues where it stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import measuring  # noqa: F401  (lets Python find reproduction)
import numpy as np
from joblib import Parallel, delayed
from selection_report import DataSetScores, write_report
from sklearn.utils import Bunch
from threadpoolctl import threadpool_limits

from domainwise import DCM
from domainwise.checks.inputs import check_sample_domain, check_target
from domainwise.estimators.path import PATH_TOLERANCE, ExactFold, project_path
from domainwise.evaluation.jobs import MethodJob
from domainwise.evaluation.problem import Problem, make_problem, outer_splits
from domainwise.models.registry import METHODS, Method, Setting
from domainwise.search.driver import Data
from domainwise.search.grids import DCM_RIDGES, DCM_WEIGHTS, dcm_grid
from domainwise.splits.folds import draw_rows
from reproduction import data as datasets

TRAINING_ROWS = 1000
ROWS_PER_DOMAIN = 300
PATH_ROWS = (2000, 5000, 10_000)

DATA_SETS: dict[str, dict[str, Callable[[], Bunch]]] = {
    "development": {
        "facies": lambda: datasets.load_facies(missing="keep"),
        "gvhd": datasets.load_gvhd,
        "parkinsons": datasets.load_parkinsons,
        "synthetic": lambda: datasets.make_synthetic(0.1, n_per_domain=300, random_state=0),
    },
    "confirmation": {
        "landmine": datasets.load_landmine,
        "oilwells": datasets.load_oilwells,
        "cytof": lambda: datasets.load_cytof(cofactor=5),
        "hipc": datasets.load_hipc,
    },
}


class WithSVM(Method):
    """A projection followed by a support vector machine instead of a linear model."""

    def make(self, setting: Setting) -> Any:
        return super().make(replace(setting, predictor="svm"))


COMPARED: list[Method] = [
    *(METHODS[key] for key in ("constant", "svm", "boosting", "coir", "dica", "dcm", "dcmcv")),
    WithSVM(
        **vars(METHODS["dcmcv"]) | {"key": "dcmcv_svm", "labels": ("DCMCV, SVM", "DCMCV, SVR")}
    ),
    METHODS["invariant"],
    METHODS["invariantridge"],
]
#: DCM with other weights, to choose the default; these are not ranked.
WEIGHTS: list[Method] = [
    replace(
        METHODS["dcm"],
        key=f"dcm@{weight}",
        labels=(f"DCM, weight {weight}",) * 2,
        grids=(dcm_grid(weight),) * 2,
    )
    for weight in (0.01, 0.1, 10.0)
]


def pose(load: Callable[[], Bunch]) -> tuple[Problem, list[tuple[Any, Any]]]:
    """Rows of a data set, and splits with a limited number of training rows."""
    bunch = load()
    rng = np.random.default_rng(0)
    selected_rows = []
    for name in np.unique(bunch.sample_domain):
        rows = np.flatnonzero(bunch.sample_domain == name)
        count = min(len(rows), ROWS_PER_DOMAIN)
        selected_rows.append(np.sort(rng.choice(rows, count, replace=False)))
    rows = np.concatenate(selected_rows)
    problem = make_problem(
        bunch.data[rows],
        bunch.target[rows],
        bunch.sample_domain[rows],
        task="auto",
        scoring=None,
        max_rows=None,
        random_state=0,
    )
    sample = draw_rows(problem.codes, TRAINING_ROWS, 0)
    splits = outer_splits(problem, None)
    return problem, [(np.intersect1d(train, sample), test) for train, test in splits]


def run(stage: str, out: Path, jobs: int, methods: list[Method]) -> None:
    """Run the searches that have no results yet."""
    out.mkdir(parents=True, exist_ok=True)
    for name, load in DATA_SETS[stage].items():
        store = out / f"{name}.jsonl"
        finished_searches = {
            (row["method"], row["split"]) for row in read(store) if "scores" in row
        }
        problem, splits = pose(load)
        waiting_searches = [
            MethodJob(problem, method, split, number)
            for method in methods
            for number, split in enumerate(splits)
            if (method.key, number) not in finished_searches
        ]
        start = time.perf_counter()
        rows = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)(
            delayed(job.run)() for job in sorted(waiting_searches, key=lambda job: -job.cost)
        )
        with store.open("a") as lines:
            for (row,) in rows:
                row.pop("predictions", None)
                row |= {"measure": problem.measure.name, "rows": len(problem.y)}
                lines.write(json.dumps(row) + "\n")
                lines.flush()
        elapsed = time.perf_counter() - start
        print(
            f"{name}: {len(problem.y)} rows, {len(waiting_searches)} searches, {elapsed:.0f} s",
            flush=True,
        )


def measure_path(out: Path, rounds: int = 3) -> None:
    """Time a grid of five ridges and five weights on one split, and one fit."""
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    candidates = [
        {"conditional": False, "epsilon": 1e-3, "domain_weight": weight, "ridge": ridge}
        for weight in DCM_WEIGHTS
        for ridge in DCM_RIDGES
    ]
    lines = []
    for n in PATH_ROWS:
        X, X_test = rng.standard_normal((n, 16)), rng.standard_normal((n // 10, 16))
        y, domain = rng.integers(2, size=n), rng.integers(10, size=n)
        target, domains = check_target(y, n, "auto"), check_sample_domain(domain, n)
        model = DCM(ridge=min(DCM_RIDGES))
        DCM().fit(X[:200], y[:200], sample_domain=domain[:200])
        seconds: dict[str, list[float]] = {"fit": [], "path": []}
        for _ in range(rounds):
            start = time.process_time()
            model.fit(X, y, sample_domain=domain)
            seconds["fit"].append(time.process_time() - start)
            start = time.process_time()
            template = DCM(ridge=min(DCM_RIDGES), tol=PATH_TOLERANCE)
            data = Data(X, y, domain, target, domains)
            points = list(project_path(ExactFold(template, data, X_test), candidates))
            seconds["path"].append(time.process_time() - start)
        medians = {name: float(np.median(values)) for name, values in seconds.items()}
        lines.append({"rows": n, "points": len(points), **medians})
        print(lines[-1], flush=True)
    (out / "path.json").write_text(json.dumps(lines))


def read(store: Path) -> list[dict[str, Any]]:
    """Rows of a results file; an incomplete last line is skipped."""
    rows = []
    for line in store.read_text().splitlines() if store.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def results(stage: str, out: Path) -> list[DataSetScores]:
    """Scores of the data sets of a stage that have results."""
    data_sets = []
    for name in DATA_SETS[stage]:
        rows = [row for row in read(out / f"{name}.jsonl") if "scores" in row]
        if rows:
            data_sets.append(DataSetScores.from_rows(name, rows))
    return data_sets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "path", "report"])
    parser.add_argument("stage", nargs="?", choices=list(DATA_SETS))
    parser.add_argument("--out", type=Path, default=Path("domainwise-results/selection"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--methods", help="names of methods, separated by commas")
    arguments = parser.parse_args()
    selected_methods = COMPARED + WEIGHTS
    if arguments.methods:
        selected_methods = [
            method for method in selected_methods if method.key in arguments.methods.split(",")
        ]
    if arguments.what == "run":
        if arguments.stage is None:
            parser.error("run needs a stage: development or confirmation.")
        run(arguments.stage, arguments.out, arguments.jobs, selected_methods)
    elif arguments.what == "path":
        with threadpool_limits(1):
            measure_path(arguments.out)
    else:
        store = arguments.out / "path.json"
        write_report(
            Path(__file__).with_name("SELECTION.md"),
            {stage: results(stage, arguments.out) for stage in DATA_SETS},
            COMPARED,
            WEIGHTS,
            json.loads(store.read_text()) if store.exists() else [],
        )


if __name__ == "__main__":
    main()
