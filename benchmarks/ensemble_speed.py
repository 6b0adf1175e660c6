"""Time, memory and scores of two versions of the ensemble, on the same folds of the leaderboard.

    python benchmarks/leaderboard.py prepare
    git archive 18932f9 | tar x -C build/before
    python benchmarks/ensemble_speed.py run --before build/before/src --workers 2
    python benchmarks/ensemble_speed.py report                      writes ENSEMBLE_SPEED.md

Each job fits both versions and one HistGradientBoosting with scikit-learn's defaults to the same
rows, one after the other on one thread. Score differences are paired over held-out domains. An
interrupted run continues where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from leaderboard_data import (
    MORE_SETS,
    OUTER_FOLDS,
    STAGE,
    TRAINING_ROWS,
    domain_scores,
    prepare,
    tasks,
)

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
VERSIONS = ("before", "now")
LEADERBOARD_NOTE = (
    "; those of the current version come from a run of the leaderboard on another machine (a busy "
    "AMD EPYC instead of an Intel Xeon), and include predictions"
)


def job(name: str, number: int, rows: int, data: Path) -> dict[str, Any]:
    """Scores by domain, CPU seconds and memory of the imported ensemble on one fold."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    from domainwise import DomainEnsembleClassifier, DomainEnsembleRegressor

    task = tasks(name, data, rows)[number]
    boosting: Any = HistGradientBoostingRegressor()
    model: Any = DomainEnsembleRegressor(random_state=0)
    if task.n_classes:
        boosting = HistGradientBoostingClassifier()
        model = DomainEnsembleClassifier(class_weight="balanced", random_state=0)
    warnings.simplefilter("ignore")
    started = time.process_time()
    boosting.fit(task.X[task.learn], task.y[task.learn])
    between = time.process_time()
    model.fit(task.X, task.y, sample_domain=task.domain, learn_from=task.learn)
    seconds = time.process_time() - between
    predicted = {
        "alone": model.predict(task.X_new)[task.scored],
        "context": model.predict(task.X_new, sample_domain=task.domain_new)[task.scored],
    }
    return {
        "set": name,
        "fold": number,
        "rows": rows,
        "classes": task.n_classes,
        "seconds": seconds,
        "boosting": between - started,
        "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "weights": model.weights_,
        "scores": {how: domain_scores(task, values) for how, values in predicted.items()},
    }


def run(arguments: argparse.Namespace) -> None:
    """Run the jobs that have no results yet, each version in a separate process."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    prepare([name for name in arguments.sets if name in MORE_SETS], arguments.data)
    store = arguments.out / "ensemble_speed.jsonl"
    finished_jobs = {(r["set"], r["fold"], r["rows"], r["version"]) for r in read(store)}
    sources = dict(zip(VERSIONS, (arguments.before, arguments.now), strict=True))
    deadline = time.time() + 60 * arguments.minutes

    def start(item: tuple[str, int, int, str]) -> None:
        name, number, rows, version = item
        if time.time() > deadline:
            return
        python_path = f"{sources[version].resolve()}{os.pathsep}{Path(__file__).parent.resolve()}"
        job_arguments = f"{name!r}, {number}, {rows}, {str(arguments.data)!r}"
        code = f"import ensemble_speed as e; e.print_job({job_arguments})"
        finished = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": python_path},
            capture_output=True,
            text=True,
            check=False,
        )
        if finished.returncode:
            print(*item, finished.stderr[-300:], flush=True)
            return
        row = json.loads(finished.stdout.splitlines()[-1]) | {"version": version}
        with store.open("a") as lines:
            lines.write(json.dumps(row) + "\n")

    todo = [
        (name, number, rows, version)
        for rows in arguments.rows
        for number in range(min(OUTER_FOLDS, arguments.folds))
        for name in arguments.sets
        for version in VERSIONS
        if (name, number, rows, version) not in finished_jobs
    ]
    with ThreadPoolExecutor(arguments.workers) as pool:
        list(pool.map(start, todo))


def print_job(name: str, number: int, rows: int, data: str) -> None:
    """Print the result of a job."""
    print(json.dumps(job(name, number, rows, Path(data))))


def read(store: Path) -> list[dict[str, Any]]:
    """Rows of a results file."""
    return [json.loads(line) for line in store.read_text().splitlines()] if store.exists() else []


def from_leaderboard(store: Path, before: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Results of the ensemble in a run of the leaderboard, with those of the earlier version."""
    methods = {"ensemble": "alone", "context": "context"}
    results: dict[Any, dict[str, Any]] = {}
    earlier_results = {(r["set"], r["fold"]): r for r in before if r["rows"] == TRAINING_ROWS}
    for row in read(store):
        key = (row["set"], row["fold"])
        if row["method"] in methods and key in earlier_results:
            now = results.setdefault(
                key, earlier_results[key] | {"version": "now", "scores": {}, "mib": np.nan}
            )
            now["seconds"] = row["seconds"]  # including predictions
            now["scores"][methods[row["method"]]] = row["scores"]
    return [row for row in results.values() if len(row["scores"]) == 2]


def difference(before: list[Any], now: list[Any], view: str) -> tuple[float, float, float]:
    """Current mean score, gain over the earlier version, and its standard error over domains."""
    pairs = [
        (b["scores"][view][d], n["scores"][view][d])
        for b, n in zip(before, now, strict=True)
        for d in b["scores"][view]
    ]
    old, new = np.array(pairs).T
    gain = new - old if before[0]["classes"] else old - new
    return float(new.mean()), float(gain.mean()), float(gain.std(ddof=1) / np.sqrt(len(gain)))


def report(arguments: argparse.Namespace) -> None:
    """Write the table of all sets."""
    rows = read(arguments.out / "ensemble_speed.jsonl")
    if arguments.leaderboard is not None:
        rows = [row for row in rows if row["version"] == "before"]
        rows += from_leaderboard(arguments.leaderboard, rows)
    by_key = {(r["rows"], r["set"], r["version"], r["fold"]): r for r in rows}
    lines, ratios = [], []
    tables = {name: [name] for name in (*STAGE, "heart")}
    draws = [name for name in ("synthetic", *MORE_SETS) if name.startswith("synthetic")]
    tables[f"synthetic, {len(draws)} draws"] = draws
    for size in sorted({r["rows"] for r in rows}):
        for label, names in tables.items():
            folds = [
                (name, f)
                for name, f in product(names, range(OUTER_FOLDS))
                if all((size, name, version, f) in by_key for version in VERSIONS)
            ]
            if not folds:
                continue
            before, now = ([by_key[size, name, v, f] for name, f in folds] for v in VERSIONS)
            seconds = [sum(r["seconds"] for r in results) for results in (before, now)]
            times = [
                sum(r["seconds"] for r in p) / sum(r["boosting"] for r in p) for p in (before, now)
            ]
            ratios.append(seconds[1] / seconds[0])
            cells = [label, size, before[0]["classes"] or "", len(folds)]
            cells += [f"{s / len(folds):.1f}" for s in seconds]
            cells += [f"{ratios[-1]:.2f}", f"{times[0]:.0f}", f"{times[1]:.0f}"]
            peaks = [max(r["mib"] for r in results) for results in (before, now)]
            cells += ["" if np.isnan(peak) else f"{peak:.0f}" for peak in peaks]
            for view in ("alone", "context"):
                mean, gain, error = difference(before, now, view)
                text = f"{mean:.4f} ({gain:+.4f} ± {error:.4f})"
                cells.append(f"**{text}**" if gain < -error else text)
            lines.append("| " + " | ".join(map(str, cells)) + " |")
    header = (
        "| set | rows | classes | folds | CPU s before | now | ratio | relative to boosting "
        "before | now | MiB before | now | score, rows one by one | score, with context |"
    )
    text = [
        "# Speed of the ensemble, before and now",
        "",
        "Written by `python benchmarks/ensemble_speed.py run`, then `report`. *Before* is commit "
        "18932f9. CPU seconds are for one fit on one thread, and are also given as multiples of "
        "one default `HistGradientBoosting` fit to the same "
        f"rows{LEADERBOARD_NOTE if arguments.leaderboard else ''}. Scores are means over held-out "
        "domains: balanced accuracy for classification, RMSE for regression. The gain over the "
        "earlier version (positive is better) and its standard error, paired over domains, are in "
        "brackets. A loss of more than one standard error is bold.",
        "",
        f"Ratio of CPU seconds: median {np.median(ratios):.2f}, largest {max(ratios):.2f}.",
        "",
        header,
        "|" + " --- |" + " ---: |" * 12,
        *lines,
    ]
    arguments.report.write_text("\n".join(text) + "\n")
    print("\n".join(text[6:]))


def main() -> None:
    """Parse the command line."""
    here = Path(__file__)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "report"])
    parser.add_argument("--before", type=Path, default=Path("build/before/src"))
    parser.add_argument("--now", type=Path, default=here.parent.parent / "src")
    sets = [*STAGE, *MORE_SETS]
    parser.add_argument("--sets", nargs="*", default=sets, choices=sets)
    parser.add_argument("--rows", nargs="*", type=int, default=[600])
    parser.add_argument("--folds", type=int, default=OUTER_FOLDS)
    parser.add_argument("--data", type=Path, default=Path("build/leaderboard"))
    parser.add_argument("--out", type=Path, default=Path("domainwise-results/ensemble_speed"))
    parser.add_argument("--report", type=Path, default=here.with_name("ENSEMBLE_SPEED.md"))
    parser.add_argument(
        "--leaderboard", type=Path, help=("read the results of the current version from this run")
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=600.0)
    arguments = parser.parse_args()
    (run if arguments.what == "run" else report)(arguments)


if __name__ == "__main__":
    main()
