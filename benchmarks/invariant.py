"""The invariant kernel on real domains: its gain, rules to choose its weight, time of a search.

This script runs nested leave-domains-out cross-validation. The domains of a data set are assigned
to at most ten folds. Each fold is held out in turn; C, gamma, domain_weight and conditional are
chosen on the other folds, which are held out in turn as well. The tuned SVM has the same grid with
domain_weight=0. Every candidate is scored on every held-out domain, and the scores are stored, so
that selection rules can be compared without fitting again.

    python benchmarks/invariant.py run development     facies, GvHD, Parkinson's, synthetic
    python benchmarks/invariant.py run confirmation    LandMine, oil wells, CyTOF, HIPC: once
    python benchmarks/invariant.py search              compares InvariantSearchCV with GridSearchCV
    python benchmarks/invariant.py report              writes INVARIANT.md

Results are written to --out as JSON lines; an interrupted run continues where it stopped.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measuring  # noqa: F401  (lets Python find reproduction)
import numpy as np
from invariant_rules import Candidate, DataSetResult, write_report
from joblib import Parallel, delayed
from sklearn.impute import SimpleImputer
from sklearn.metrics import balanced_accuracy_score, root_mean_squared_error
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import Bunch
from threadpoolctl import threadpool_limits

from domainwise import InvariantSVC, InvariantSVR
from domainwise.invariant.search import SplitKernels
from domainwise.kernels.functions import resolve_gamma
from domainwise.selection import InvariantSearchCV, LeaveDomainsOut
from reproduction import data as datasets

COSTS = (0.1, 1.0, 10.0)
GAMMAS = (0.3, 1.0)  # multiples of the median rule on the training rows
WEIGHTS = (0.0, 0.01, 0.1, 1.0, 10.0)


@dataclass(frozen=True)
class DataSet:
    """A data set; the metric is RMSE for regression, balanced accuracy for classification."""

    load: Callable[[], Bunch]
    rows_per_domain: int
    n_domains: int | None = None
    n_folds: int = 10
    regression: bool = False


DATA_SETS = {
    "development": {
        "facies": DataSet(lambda: datasets.load_facies(missing="keep"), 150),
        "gvhd": DataSet(datasets.load_gvhd, 100),
        "parkinsons": DataSet(datasets.load_parkinsons, 20, regression=True),
        "synthetic": DataSet(
            lambda: datasets.make_synthetic(0.1, n_per_domain=150, random_state=0), 80, n_folds=5
        ),
    },
    "confirmation": {
        "landmine": DataSet(datasets.load_landmine, 60, n_domains=15, n_folds=5),
        "oilwells": DataSet(datasets.load_oilwells, 100, n_folds=5),
        "cytof": DataSet(lambda: datasets.load_cytof(cofactor=5), 45, n_folds=5),
        "hipc": DataSet(datasets.load_hipc, 40, n_folds=5),
    },
}
#: Data sets on which the two searches are compared.
SEARCHED = {
    "synthetic": DataSet(
        lambda: datasets.make_synthetic(n_domains=6, n_per_domain=250, random_state=0), 250
    ),
    "facies": DATA_SETS["development"]["facies"],
    "gvhd": DATA_SETS["development"]["gvhd"],
}


def candidates(regression: bool) -> list[Candidate]:
    """The grid: without domains first, then marginal and (for classes) conditional weights."""
    kinds = [(0.0, False)] + [(w, False) for w in WEIGHTS[1:]]
    if not regression:
        kinds += [(w, True) for w in WEIGHTS[1:]]
    return [
        Candidate(C, gamma, weight, conditional)
        for gamma in GAMMAS
        for weight, conditional in kinds
        for C in COSTS
    ]


def draw(data_set: DataSet) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, targets and domains, with at most ``rows_per_domain`` rows of each domain."""
    bunch = data_set.load()
    rng = np.random.default_rng(0)
    names = np.unique(bunch.sample_domain)
    if data_set.n_domains is not None:
        names = np.sort(rng.choice(names, data_set.n_domains, replace=False))
    rows = []
    for name in names:
        domain_rows = np.flatnonzero(bunch.sample_domain == name)
        count = min(len(domain_rows), data_set.rows_per_domain)
        rows.append(np.sort(rng.choice(domain_rows, count, replace=False)))
    chosen_rows = np.concatenate(rows)
    return bunch.data[chosen_rows], bunch.target[chosen_rows], bunch.sample_domain[chosen_rows]


def deal(domain: np.ndarray, n_folds: int) -> list[list[Any]]:
    """Domains of each fold."""
    names = np.unique(domain)
    order = np.random.default_rng(1).permutation(len(names))
    groups = np.array_split(order, min(n_folds, len(names)))
    return [names[np.sort(group)].tolist() for group in groups]


def score_held(
    X: np.ndarray, y: np.ndarray, domain: np.ndarray, held: list[Any], regression: bool
) -> dict[str, list[float]]:
    """Train every candidate on the other domains, and score it on each held-out domain."""
    test = np.isin(domain, held)
    scale = make_pipeline(SimpleImputer(), StandardScaler()).fit(X[~test])
    X_train, X_test = scale.transform(X[~test]), scale.transform(X[test])
    y_train, y_test, test_domain = y[~test], y[test], domain[test]
    median = resolve_gamma("median", "rbf", X_train)
    scores: dict[str, list[float]] = {str(name): [] for name in held}
    grid = candidates(regression)
    for gamma, by_gamma in itertools.groupby(grid, key=lambda c: c.gamma):
        split_kernels = None
        for (weight, conditional), group in itertools.groupby(
            by_gamma, key=lambda c: (c.weight, c.conditional)
        ):
            arguments = dict(gamma=gamma * median, domain_weight=weight, conditional=conditional)
            for candidate in group:
                if regression:
                    svm: Any = InvariantSVR(candidate.C, **arguments)
                else:
                    svm = InvariantSVC(candidate.C, class_weight="balanced", **arguments)
                if split_kernels is None:
                    split_kernels = SplitKernels.evaluate(svm, X_train, X_test)
                fitted_svm, test_kernel = split_kernels.fit_svm(svm, y_train, domain[~test])
                predicted = fitted_svm.predict(test_kernel)
                for name in held:
                    in_domain = test_domain == name
                    scores[str(name)].append(
                        score(y_test[in_domain], predicted[in_domain], regression)
                    )
    if regression:  # the best constant, for comparison
        for name in held:
            constant = np.full((test_domain == name).sum(), y_train.mean())
            scores[str(name)].append(score(y_test[test_domain == name], constant, True))
    return scores


def score(target: np.ndarray, predicted: np.ndarray, regression: bool) -> float:
    """Larger is better."""
    if regression:
        return -float(root_mean_squared_error(target, predicted))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # predicted classes that do not occur in this domain
        return float(balanced_accuracy_score(target, predicted))


def tasks(folds: list[list[Any]]) -> Iterator[tuple[int, ...]]:
    """Sets of folds that are held out together: pairs for inner scores, one for outer scores."""
    yield from ((i,) for i in range(len(folds)))
    yield from itertools.combinations(range(len(folds)), 2)


def run(stage: str, out: Path, jobs: int) -> None:
    """Score the folds that have no results yet."""
    out.mkdir(parents=True, exist_ok=True)
    for name, data_set in DATA_SETS[stage].items():
        store = out / f"{name}.jsonl"
        stored_records = read(store)
        finished_folds = {tuple(r["held"]) for r in stored_records}
        if stored_records and len(finished_folds) == len(list(tasks(stored_records[0]["folds"]))):
            continue
        X, y, domain = draw(data_set)
        folds = deal(domain, data_set.n_folds)
        todo = [task for task in tasks(folds) if task not in finished_folds]
        start = time.perf_counter()

        def work(task: tuple[int, ...]) -> tuple[tuple[int, ...], dict[str, list[float]]]:
            held = [d for fold in task for d in folds[fold]]  # noqa: B023
            with threadpool_limits(1):
                return task, score_held(X, y, domain, held, data_set.regression)  # noqa: B023

        results = Parallel(n_jobs=jobs, return_as="generator")(delayed(work)(t) for t in todo)
        with store.open("a") as lines:
            for task, scores in results:
                record = {"held": task, "rows": len(X), "folds": folds, "scores": scores}
                lines.write(json.dumps(record, default=str) + "\n")
                lines.flush()
        print(f"{name}: {len(X)} rows, {len(todo)} fits, {time.perf_counter() - start:.0f} s")


def read(store: Path) -> list[dict[str, Any]]:
    if not store.exists():
        return []
    records = []
    for line in store.read_text().splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:  # incomplete, because the run was interrupted
            continue
    return records


def search(out: Path, rounds: int = 1) -> None:
    """Measure one search with both classes, in CPU seconds of one thread, and store the result."""
    out.mkdir(parents=True, exist_ok=True)
    store = out / "search.json"
    lines = json.loads(store.read_text()) if store.exists() else []
    for name, data_set in SEARCHED.items():
        if name in {line["data"] for line in lines}:
            continue
        X, y, domain = draw(data_set)
        X = make_pipeline(SimpleImputer(), StandardScaler()).fit_transform(X)
        grid = {
            "gamma": [resolve_gamma("median", "rbf", X)],
            "conditional": [False, True],
            "domain_weight": list(WEIGHTS),
            "C": [0.1, 1.0, 10.0],
        }
        model = InvariantSVC(class_weight="balanced")
        options = dict(scoring="balanced_accuracy", cv=LeaveDomainsOut())
        searches: dict[str, Any] = {
            "path": InvariantSearchCV(model, grid, **options),
            "plain": GridSearchCV(model, grid, refit=True, **options),
        }
        seconds: dict[str, list[float]] = {key: [] for key in searches}
        for _ in range(rounds):
            for key, one in searches.items():
                start = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    one.fit(X, y, sample_domain=domain)
                seconds[key].append(time.process_time() - start)
        path, plain = searches["path"], searches["plain"]
        difference = np.abs(
            path.cv_results_["mean_test_score"] - plain.cv_results_["mean_test_score"]
        ).max()
        lines.append(
            {
                "data": name,
                "rows": len(X),
                "splits": path.n_splits_,
                "candidates": len(plain.cv_results_["params"]),
                "path": float(np.median(seconds["path"])),
                "plain": float(np.median(seconds["plain"])),
                "same_winner": path.best_params_ == plain.best_params_,
                "largest_difference": float(difference),
            }
        )
        print(lines[-1], flush=True)
        store.write_text(json.dumps(lines))


def results(stage: str, out: Path) -> dict[str, DataSetResult]:
    """Stored scores of the data sets that are complete."""
    by_name = {}
    for name, data_set in DATA_SETS[stage].items():
        records = read(out / f"{name}.jsonl")
        if not records or len(records) < len(list(tasks(records[0]["folds"]))):
            continue
        by_name[name] = DataSetResult(
            name, data_set.regression, candidates(data_set.regression), records
        )
    return by_name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "search", "report"])
    parser.add_argument("stage", nargs="?", choices=list(DATA_SETS))
    parser.add_argument("--out", type=Path, default=Path("domainwise-results/invariant"))
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.what == "run":
        if arguments.stage is None:
            parser.error("run needs a stage: development or confirmation.")
        run(arguments.stage, arguments.out, arguments.jobs)
    elif arguments.what == "search":
        import sklearn

        sklearn.set_config(enable_metadata_routing=True)
        search(arguments.out)
    else:
        store = arguments.out / "search.json"
        write_report(
            Path(__file__).with_name("INVARIANT.md"),
            results("development", arguments.out),
            results("confirmation", arguments.out),
            json.loads(store.read_text()) if store.exists() else [],
        )


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
