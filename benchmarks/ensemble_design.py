"""How members of an ensemble are best put together, on the development sets alone.

Every member's predictions are stored once: for source rows by members fitted without their domain,
and for the rows of the domains left out. All ways to weight and average them are then compared
without fitting anything again.

    python benchmarks/leaderboard.py prepare
    python benchmarks/ensemble_design.py run --workers 2 --minutes 60 --out build/design
    python benchmarks/ensemble_design.py report --out build/design
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from leaderboard_data import DATA_SETS, tasks

from domainwise.checks.inputs import check_sample_domain, check_target
from domainwise.ensemble import DomainContext
from domainwise.ensemble.judge import Judge
from domainwise.ensemble.kinds import KINDS, Sources, outputs
from domainwise.ensemble.members import best_of_paths, out_of_domain
from domainwise.selection import LeaveDomainsOut
from domainwise.selection.search import make_splits

#: Features that members are fitted to.
VIEWS = ("plain", "context", "clipped", "summary")
CLIP = 3.0


def job(name: str, fold: int, view: str, kind_name: str, data: Path, out: Path) -> str:
    """Search one kind on one view of one outer fold, and store what it predicts."""
    path = out / f"{name}-{fold}-{view}-{kind_name}.npz"
    started = time.process_time()
    task = tasks(name, data)[fold]
    context = DomainContext(summary=view == "summary").fit(task.X)
    if view in ("context", "summary"):
        Z = context.transform(task.X, sample_domain=task.domain)
        Z_new = context.transform(task.X_new, sample_domain=task.domain_new)
    else:
        Z, Z_new = context._standardised(task.X), context._standardised(task.X_new)
    if view == "clipped":
        Z, Z_new = (CLIP * np.tanh(A / CLIP) for A in (Z, Z_new))
    Z, Z_new = np.nan_to_num(Z)[task.learn], np.nan_to_num(Z_new)[task.scored]
    y, domain = task.y[task.learn], check_sample_domain(task.domain[task.learn], len(Z))
    classes = None
    if task.n_classes:
        target = check_target(y, len(Z), "delta")
        y, classes = target.codes, target.names
    else:
        mean, deviation = y.mean(), y.std()
        y = (y - mean) / deviation
        target = check_target(y, len(Z), "rbf")
    balanced = "balanced" if task.n_classes else None
    sources = Sources(Z, y, target, domain, balanced, 0)
    cv = LeaveDomainsOut(max_splits=10, random_state=0)
    splits = make_splits(cv, y, target, domain)
    rows = np.unique(np.concatenate([split.test for split in splits]))
    judge = Judge(y, classes, domain.codes, domain.n_categories, rows, np.ones(len(y)), True, None)
    kind = KINDS[kind_name]()
    candidates = kind.candidates(sources)
    values = out_of_domain(kind, candidates, sources, splits, None)
    scores = np.array([judge.choice_score(v) for v in values])
    chosen = best_of_paths(candidates, scores, kind.path)[: kind.n_average]
    inner = values[chosen].mean(axis=0, dtype=np.float64)
    models = kind.fit(sources, [candidates[i] for i in chosen])
    outer = np.mean([outputs(model, Z_new, sources.n_classes) for model in models], axis=0)
    np.savez_compressed(
        path.with_suffix(".part.npz"),
        inner=inner.astype(np.float32),
        outer=outer.astype(np.float32),
        y=y,
        domain=domain.codes,
        y_new=task.y_new[task.scored]
        if task.n_classes
        else (task.y_new[task.scored] - mean) / deviation,
        domain_new=task.domain_new[task.scored],
        classes=np.array([]) if classes is None else classes,
        score=scores.max(),
        chosen=np.array([str(candidates[i]) for i in chosen]),
        seconds=time.process_time() - started,
    )
    os.replace(path.with_suffix(".part.npz"), path)
    return f"{path.stem} {time.process_time() - started:.1f} s"


def run(arguments: argparse.Namespace) -> None:
    """Do what is not stored yet, until the time is over."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    deadline = time.time() + 60 * arguments.minutes
    todo = []
    for name in arguments.sets or DATA_SETS["development"]:
        for fold in range(len(tasks(name, arguments.data))):
            for view in arguments.views:
                for kind in KINDS:
                    if not (arguments.out / f"{name}-{fold}-{view}-{kind}.npz").exists():
                        todo.append((name, fold, view, kind))
    # Folds in turn, so that a run that is stopped has some of every set.
    todo.sort(key=lambda each: (each[1], VIEWS.index(each[2])))
    with ProcessPoolExecutor(arguments.workers) as pool:
        running: set = set()
        while todo or running:
            while todo and len(running) < arguments.workers and time.time() < deadline:
                running.add(pool.submit(job, *todo.pop(0), arguments.data, arguments.out))
            for future in [future for future in running if future.done()]:
                running.remove(future)
                print(future.exception() or future.result(), flush=True)
            if time.time() > deadline and not running:
                break
            time.sleep(0.02)
    print(f"{len(todo)} left", flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run"])
    parser.add_argument("--data", type=Path, default=Path("build/leaderboard"))
    parser.add_argument("--out", type=Path, default=Path("build/design"))
    parser.add_argument("--sets", nargs="*")
    parser.add_argument("--views", nargs="*", default=list(VIEWS))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60.0)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
