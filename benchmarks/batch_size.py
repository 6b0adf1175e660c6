"""Scores of ensembles by the size of the batches that they predict, with and without context.

    python benchmarks/leaderboard.py prepare                      needs the data and pandas
    python benchmarks/batch_size.py run --workers 8 --minutes 5   fits; can be interrupted
    python benchmarks/batch_size.py report                        writes BATCH_SIZE.md, a figure

Ensembles are trained on 600 rows from the source domains of a fold. Statistics of source domains
are computed from all their rows ("large"), or from the training rows only ("small"); in the second
case, batches can be larger than the source domains. The rows of a held-out domain are divided at
random into batches of equal size, and at least 300 rows (or all) are scored. In the figure,
"before" is an earlier version of context, without the division into parts, the shrinkage and the
check for unusual batches: it compared each row with all rows of its batch, even if there were few.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from leaderboard_data import DATA_SETS, Task, tasks

from domainwise import DomainEnsembleClassifier, DomainEnsembleRegressor

HERE = Path(__file__).parent
SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
SCORED = 300
SOURCES = ("large", "small")


def score(task: Task, y: np.ndarray, outputs: np.ndarray) -> float:
    """Balanced accuracy, or the negative root mean squared error."""
    if not task.n_classes:
        return -float(np.sqrt(np.mean((outputs - y) ** 2)))
    correct = outputs == y
    return float(np.mean([correct[y == c].mean() for c in np.unique(y)]))


def standard_error(values: np.ndarray) -> float:
    """The standard error of the mean."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def batches(rows: np.ndarray, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a domain in random order, and the batch number of each row."""
    rows = rng.permutation(rows)
    n = max(1, min(len(rows), max(SCORED, size)) // size) * min(size, len(rows))
    return rows[:n], np.arange(n) // size


def job(name: str, fold: int, sources: str, data: Path, out: Path) -> str:
    """Fit an ensemble to one fold, and score it on batches of every size."""
    path = out / f"{name}-{fold}-{sources}.json"
    task = tasks(name, data)[fold]
    model: Any = DomainEnsembleRegressor(random_state=0)
    if task.n_classes:
        model = DomainEnsembleClassifier(class_weight="balanced", random_state=0)
    started = time.process_time()
    warnings.simplefilter("ignore")
    if sources == "large":
        model.fit(task.X, task.y, sample_domain=task.domain, learn_from=task.learn)
    else:
        training_rows = task.learn
        model.fit(
            task.X[training_rows], task.y[training_rows], sample_domain=task.domain[training_rows]
        )
    entries: list[dict[str, Any]] = []
    seconds = {"fit": time.process_time() - started}
    if model.uses_context:
        fitted_state = (model._trust, model._source_range)
        for domain in np.unique(task.domain_new):
            domain_rows = np.flatnonzero(task.domain_new == domain)
            covering_sizes = [size for size in SIZES if size >= len(domain_rows)][:1]
            for size in [size for size in SIZES if size < len(domain_rows)] + covering_sizes:
                rng = np.random.default_rng([fold, int(domain), size])
                rows, batch = batches(domain_rows, size, rng)
                y, X = task.y_new[rows], task.X_new[rows]
                entry: dict[str, Any] = {"domain": int(domain), "size": min(size, len(rows))}
                started = time.process_time()
                entry["plain"] = score(task, y, model.predict(X))
                one_by_one = time.process_time() - started
                started = time.process_time()
                entry["context"] = score(task, y, model.predict(X, sample_domain=batch))
                entry["cost"] = (time.process_time() - started) / max(one_by_one, 1e-9)
                alarms = model.domains_without_context(X, batch)
                entry["alarm"] = len(alarms) / (int(batch[-1]) + 1)
                model._trust, model._source_range = None, None
                entry["before"] = score(task, y, model.predict(X, sample_domain=batch))
                model._trust, model._source_range = fitted_state
                entries.append(entry)
    content = {
        "set": name,
        "fold": fold,
        "sources": sources,
        "batch_size": model.context_batch_size_,
        "half": None if model._trust is None else model._trust.half,
        "seconds": seconds,
        "scores": entries,
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    return f"{path.stem} {seconds['fit']:.0f} s"


def run(arguments: argparse.Namespace) -> None:
    """Run the jobs that have no results yet, until the time limit."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    deadline = time.time() + 60 * arguments.minutes
    todo = [
        (name, fold, sources)
        for fold in range(arguments.folds)
        for sources in SOURCES
        for name in arguments.sets or DATA_SETS["development"]
        if fold < len(tasks(name, arguments.data))
        and not (arguments.out / f"{name}-{fold}-{sources}.json").exists()
    ]
    with ProcessPoolExecutor(arguments.workers) as pool:
        running: set = set()
        while running or (todo and time.time() < deadline):
            while todo and len(running) < arguments.workers and time.time() < deadline:
                running.add(pool.submit(job, *todo.pop(0), arguments.data, arguments.out))
            for future in [future for future in running if future.done()]:
                running.remove(future)
                print(future.exception() or future.result(), flush=True)
            time.sleep(0.05)
    print(f"{len(todo)} left", flush=True)


def collected(out: Path) -> dict[tuple[str, str], dict[int, np.ndarray]]:
    """Scores of all folds by set and kind of sources, and by size.

    The columns are plain, context, before, whether the batch was unusual, and the relative time.
    A domain with fewer rows than the batch size is one batch, so all sizes include all domains.
    """
    files = [json.loads(path.read_text("utf-8")) for path in sorted(out.glob("*.json"))]
    scores: dict[tuple[str, str], dict[int, list]] = {}
    for file in files:
        by_domain: dict[int, dict[int, list[float]]] = {}
        for entry in file["scores"]:
            values = [float(entry[key]) for key in ("plain", "context", "before", "alarm", "cost")]
            by_domain.setdefault(entry["domain"], {})[entry["size"]] = values
        for entries in by_domain.values():
            measured_sizes = sorted(entries)
            for size in SIZES:
                nearest_size = [n for n in measured_sizes if n <= size][-1]
                by_size = scores.setdefault((file["set"], file["sources"]), {})
                by_size.setdefault(size, []).append(entries[nearest_size])
    return {
        key: {n: np.array(v) for n, v in scores_by_size.items()}
        for key, scores_by_size in scores.items()
    }


def report(arguments: argparse.Namespace) -> None:
    """Write tables and the figure."""
    scores = collected(arguments.out)
    lines = ["# Scores by batch size", "", *(__doc__ or "").split("\n\n")[2:], ""]
    lines += [arguments.note, ""] if arguments.note else []
    lines += ["![Gain from context, by batch size](../docs/batch_size.png)", ""]
    worst: list[tuple[float, str]] = []
    for sources in SOURCES:
        lines += [
            f"## Statistics of source domains from {'all' if sources == 'large' else 'few'} rows",
            "",
            "The column *one by one* is the score for rows predicted one by one. The other columns "
            "show the gain from context ± its standard error over domains, and in brackets the "
            "gain with the earlier version of context. Scores are balanced accuracy, or the "
            "negative RMSE.",
            "",
            "| set | domains | one by one | " + " | ".join(map(str, SIZES)) + " |",
            "|---|---|---|" + "---|" * len(SIZES),
        ]
        for (name, kind), by_size in scores.items():
            if kind != sources:
                continue
            cells = []
            for size in SIZES:
                values = by_size[size]
                gain, before = values[:, 1] - values[:, 0], values[:, 2] - values[:, 0]
                error = standard_error(gain)
                worst.append((gain.mean() + error, f"{name}, {sources}, {size} rows"))
                cells.append(f"{gain.mean():+.3f} ± {error:.3f} ({before.mean():+.3f})")
            single_scores = by_size[SIZES[-1]][:, 0]
            lines.append(
                f"| {name} | {len(single_scores)} | {single_scores.mean():.3f} | "
                + " | ".join(cells)
            )
        lines.append("")
    alarms = [f"{values.mean():.1%} at {n}" for n, values in by_sizes(scores, 3).items()]
    relative_times = [
        f"{np.median(values):.1f} at {n}" for n, values in by_sizes(scores, 4).items()
    ]
    losses = [f"{setting} ({value:+.3f})" for value, setting in worst if value < -1e-12]
    lines += [
        "Losses of more than one standard error: "
        + ("; ".join(losses) if losses else "none")
        + ".",
        "",
        "Share of unusual batches, whose rows are predicted one by one, by batch size: "
        f"{', '.join(alarms)}.",
        "Median time of a prediction with context, relative to predicting rows one by one, by "
        "batch size: "
        f"{', '.join(relative_times)}.",
        "",
    ]
    (HERE / "BATCH_SIZE.md").write_text("\n".join(lines), encoding="utf-8")
    draw(scores, HERE.parent / "docs" / "batch_size.png")


def by_sizes(scores: dict[tuple[str, str], dict[int, np.ndarray]], column: int) -> dict[int, Any]:
    """One column of all data sets together, by batch size."""
    return {
        n: np.concatenate([scores_by_size[n][:, column] for scores_by_size in scores.values()])
        for n in SIZES
    }


def draw(scores: dict[tuple[str, str], dict[int, np.ndarray]], path: Path) -> None:
    """Plot the gain from context, by data set."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(name for name, _ in scores))
    figure, axes = plt.subplots(2, len(names), figsize=(2.4 * len(names), 5), squeeze=False)
    for row, sources in zip(axes, SOURCES, strict=True):
        for axis, name in zip(row, names, strict=True):
            by_size = scores.get((name, sources))
            axis.set_title(f"{name}, {sources}", fontsize=8)
            axis.axhline(0.0, color="0.6", linewidth=0.8)
            axis.set_xscale("log")
            axis.tick_params(labelsize=7)
            if by_size is None:
                continue
            for column, style, label in ((2, "C1--", "before"), (1, "C0-", "context")):
                gains = [by_size[n][:, column] - by_size[n][:, 0] for n in SIZES]
                mean = np.array([gain.mean() for gain in gains])
                error = np.array([standard_error(gain) for gain in gains])
                axis.plot(SIZES, mean, style, linewidth=1.2, label=label)
                if column == 1:
                    axis.fill_between(SIZES, mean - error, mean + error, alpha=0.2)
    axes[0, 0].legend(fontsize=7)
    figure.supxlabel("rows in a batch", fontsize=9)
    figure.supylabel("gain from context", fontsize=9)
    figure.tight_layout(rect=(0.01, 0.01, 1.0, 1.0))
    figure.savefig(path, dpi=100)


def main() -> None:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["run", "report"])
    parser.add_argument("--sets", nargs="*")
    parser.add_argument("--folds", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--note", default="", help="a sentence for the report")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--data", type=Path, default=Path("build/leaderboard"))
    parser.add_argument("--out", type=Path, default=Path("build/batch_size"))
    arguments = parser.parse_args()
    {"run": run, "report": report}[arguments.command](arguments)


if __name__ == "__main__":
    main()
