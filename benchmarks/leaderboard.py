"""Compare all methods on unseen domains of all data sets.

    python benchmarks/leaderboard.py prepare                        needs the data and pandas
    python benchmarks/leaderboard.py run --workers 2 --minutes 60   needs the files from prepare
    python benchmarks/leaderboard.py report                         writes LEADERBOARD.md

Domains are held out in at most eight groups. Methods are trained on 600 rows from the others
and choose their parameters by holding out some of these domains. Every held-out domain is scored
separately. Development sets were used to design the ensemble, and confirmation sets were run once,
after the design was fixed. An interrupted run continues where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from data_sets import STAGE, Task, domain_scores, prepare, tasks
from leaderboard_report import write_report
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from domainwise import DomainEnsembleClassifier, DomainEnsembleRegressor
from domainwise.models.registry import METHODS, Setting
from domainwise.models.tuning import MethodSearch

#: From the fastest to the slowest; an ensemble has results with and without context.
NAMES = (
    "constant",
    "linear",
    "svm",
    "boosting",
    "trees",
    "coir",
    "dcmcv",
    "invariant",
    "invariantridge",
    "ensemble",
    "dica",
)
#: Methods from optional packages, if they are installed.
OPTIONAL = ("lightgbm", "catboost", "autogluon")


def search_of(name: str, task: Task) -> Any:
    """A method of `domainwise evaluate`, or trees, with its search."""
    classes = bool(task.n_classes)
    scoring = "balanced_accuracy" if classes else "neg_root_mean_squared_error"
    weight = "balanced" if classes else None
    if name == "trees":
        model: Any = ExtraTreesRegressor(200, random_state=0)
        shares: list[Any] = [0.3, 1.0]
        if classes:
            model, shares = (
                ExtraTreesClassifier(200, class_weight=weight, random_state=0),
                ["sqrt", 0.5],
            )
        return MethodSearch(
            model, {"max_features": shares, "min_samples_leaf": [1, 5]}, scoring=scoring
        )
    if name in ("lightgbm", "catboost"):
        return MethodSearch(
            external_boosting(name, classes), {"max_depth": [2, 6]}, scoring=scoring
        )
    setting = Setting(classes, len(task.learn), scoring=scoring, class_weight=weight)
    return METHODS[name].make(setting)


def external_boosting(name: str, classes: bool) -> Any:
    """Boosting from an optional package."""
    if name == "lightgbm":
        import lightgbm

        options: dict[str, Any] = {"n_estimators": 100, "n_jobs": 1, "verbose": -1}
        if classes:
            return lightgbm.LGBMClassifier(class_weight="balanced", **options)
        return lightgbm.LGBMRegressor(**options)
    import catboost

    options = {"iterations": 200, "thread_count": 1, "verbose": 0, "allow_writing_files": False}
    if classes:
        return catboost.CatBoostClassifier(auto_class_weights="Balanced", **options)
    return catboost.CatBoostRegressor(**options)


def predictions(name: str, task: Task) -> dict[str, np.ndarray]:
    """Predictions for the scored rows, by name: an ensemble predicts with and without context."""
    if name == "ensemble":
        model: Any = DomainEnsembleRegressor(random_state=0)
        if task.n_classes:
            model = DomainEnsembleClassifier(class_weight="balanced", random_state=0)
        model.fit(task.X, task.y, sample_domain=task.domain, learn_from=task.learn)
        context_predictions = model.predict(task.X_new, sample_domain=task.domain_new)
        row_predictions = model.predict(task.X_new[task.scored])
        return {"ensemble": row_predictions, "context": context_predictions[task.scored]}
    if name == "autogluon":
        return {name: autogluon(task)}
    return {name: fitted(name, task)(task.X_new[task.scored])}


def fitted(name: str, task: Task) -> Callable[[np.ndarray], np.ndarray]:
    """Search and fit a method, and return its predictions as a function of rows."""
    scale = make_pipeline(
        SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler()
    )
    X, y, domain = (array[task.learn] for array in (task.X, task.y, task.domain))
    model = search_of(name, task).fit(scale.fit_transform(X), y, sample_domain=domain)
    return lambda new: np.asarray(model.predict(scale.transform(new)))


def autogluon(task: Task, seconds: int = 40) -> np.ndarray:
    """Run AutoGluon on the same rows and one core, with at most eight groups of domains as folds.

    It runs without neural networks, which need a GPU or more time.
    """
    import tempfile

    import pandas as pd
    from autogluon.tabular import TabularPredictor

    domains, codes = np.unique(task.domain[task.learn], return_inverse=True)
    table = pd.DataFrame(task.X[task.learn]).add_prefix("x")
    table["y"], table["group"] = task.y[task.learn], codes % min(8, len(domains))
    metric = "balanced_accuracy" if task.n_classes else "root_mean_squared_error"
    with tempfile.TemporaryDirectory() as folder:
        predictor = TabularPredictor(
            "y",
            groups="group",
            eval_metric=metric,
            sample_weight="balance_weight" if task.n_classes else None,
            path=folder,
            verbosity=0,
        )
        predictor.fit(
            table,
            time_limit=seconds,
            num_bag_folds=8,
            num_stack_levels=0,
            num_cpus=1,
            num_gpus=0,
            excluded_model_types=["NN_TORCH", "FASTAI"],
            ag_args_ensemble={"fold_fitting_strategy": "sequential_local"},
        )
        return np.asarray(predictor.predict(pd.DataFrame(task.X_new[task.scored]).add_prefix("x")))


def job(data: Path, name: str, number: int, method: str) -> list[dict[str, Any]]:
    """Scores of one method on one outer fold, by domain."""
    task = tasks(name, data)[number]
    started = time.process_time()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        by_name = predictions(method, task)
    seconds = time.process_time() - started
    return [
        {
            "set": name,
            "fold": number,
            "method": label,
            "classes": task.n_classes,
            "scores": domain_scores(task, predicted),
            "seconds": seconds,  # for an ensemble, with and without context together
        }
        for label, predicted in by_name.items()
    ]


def worker(queue: Any, results: Any, data: Path) -> None:
    """Run jobs until the queue is empty."""
    while (item := queue.get()) is not None:
        try:
            results.put((item, job(data, *item)))
        except Exception as error:
            results.put((item, [{"error": f"{type(error).__name__}: {error}"[:300]}]))


def run(arguments: argparse.Namespace) -> None:
    """Run the jobs that have no results yet, until the time limit."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    store = arguments.out / "leaderboard.jsonl"
    finished_jobs = {(row["set"], row["fold"], row["method"]) for row in read(store)}
    waiting_jobs = [
        (name, number, method)
        for name in arguments.sets
        for number in range(len(tasks(name, arguments.data)))
        for method in arguments.methods
        if (name, number, method) not in finished_jobs
    ]
    # Fold by fold, so that an interrupted run has results of all methods for some folds.
    method_order = {name: i for i, name in enumerate(arguments.methods)}
    waiting_jobs.sort(key=lambda job: (job[1], method_order[job[2]]))
    deadline = time.time() + 60 * arguments.minutes
    spawn = get_context("spawn")
    queue, results = spawn.Queue(), spawn.Queue()
    for item in waiting_jobs:
        queue.put(item)
    for _ in range(arguments.workers):
        queue.put(None)
    processes = [
        spawn.Process(target=worker, args=(queue, results, arguments.data), daemon=True)
        for _ in range(arguments.workers)
    ]
    for process in processes:
        process.start()
    n_left = len(waiting_jobs)
    with store.open("a") as lines:
        while n_left and time.time() < deadline:
            try:
                item, rows = results.get(timeout=1.0)
            except Exception:  # nothing yet
                continue
            n_left -= 1
            for row in rows:
                if "error" in row:
                    print(*item, row["error"], flush=True)
                else:
                    lines.write(json.dumps(row) + "\n")
            lines.flush()
            if n_left % 50 == 0:
                print(f"{n_left} jobs left", flush=True)
    for process in processes:
        process.terminate()
    print(f"{n_left} jobs left at the end", flush=True)
    os._exit(0)  # do not wait for items that are still in the queues


def read(store: Path) -> list[dict[str, Any]]:
    """Rows of a results file; an incomplete line is skipped."""
    rows = []
    for line in store.read_text().splitlines() if store.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["prepare", "run", "report"])
    parser.add_argument("--sets", nargs="*", default=list(STAGE), choices=list(STAGE))
    parser.add_argument("--methods", nargs="*", default=list(NAMES), choices=[*NAMES, *OPTIONAL])
    parser.add_argument("--data", type=Path, default=Path("build/data_sets"))
    parser.add_argument("--out", type=Path, default=Path("domainwise-results/leaderboard"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=600.0)
    arguments = parser.parse_args()
    if arguments.what == "prepare":
        prepare(arguments.sets, arguments.data)
    elif arguments.what == "run":
        run(arguments)
    else:
        rows = read(arguments.out / "leaderboard.jsonl")
        write_report(Path(__file__).with_name("LEADERBOARD.md"), rows)


if __name__ == "__main__":
    main()
