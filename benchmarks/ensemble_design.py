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
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from leaderboard_data import DATA_SETS, tasks
from scipy.optimize import nnls
from scipy.stats import rankdata

from domainwise.calibration.curves import fit_curve
from domainwise.checks.inputs import check_sample_domain, check_target
from domainwise.ensemble import DomainContext
from domainwise.ensemble.held_out import (
    HeldOutScore,
    balanced_accuracies,
    equal_weights,
    exponent_scores,
    squared_errors,
)
from domainwise.ensemble.members import MEMBER_TYPES, MemberData
from domainwise.search.driver import best_of_paths, search
from domainwise.search.scores import outputs
from domainwise.selection import LeaveDomainsOut
from domainwise.splits.folds import domain_folds

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
    sources = MemberData(Z, y, target=target, domain=domain, class_weight=balanced)
    cv = LeaveDomainsOut(max_splits=10, random_state=0)
    splits, _ = domain_folds(y, domain.codes, classification=classes is not None, cv=cv)
    rows = np.unique(np.concatenate([test for _, test in splits]))
    counted = (domain.codes, domain.n_categories, rows, np.ones(len(y)))
    score = HeldOutScore(y, classes, *counted, True, None)
    kind = MEMBER_TYPES[kind_name]()
    rule = partial(best_of_paths, path=(kind.path,), n=kind.n_average)
    result = search(kind, sources, splits, score, rule)
    inner = result.held_out.mean(axis=0, dtype=np.float64)
    models = kind.fit(sources, result.chosen)
    outer = np.mean([outputs(model, Z_new, score.n_classes) for model in models], axis=0)
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
        score=result.scores.max(),
        chosen=np.array([str(candidate) for candidate in result.chosen]),
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
                for kind in MEMBER_TYPES:
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


@dataclass(frozen=True)
class Fold:
    """Stored predictions of one outer fold: for source rows, and for rows of new domains.

    ``predicted`` is by view and kind: probabilities, or a column of values.
    """

    predicted: dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]
    inner: tuple[np.ndarray, np.ndarray]
    outer: tuple[np.ndarray, np.ndarray]
    classes: bool

    def quality(self, predicted: np.ndarray, which: str) -> np.ndarray:
        """Balanced accuracies, or squared errors, by domain."""
        y, domains = self.inner if which == "inner" else self.outer
        n = int(domains.max()) + 1
        if self.classes:
            return balanced_accuracies(y, predicted.argmax(axis=1), domains, n)
        return squared_errors(y, predicted[:, 0], domains, n)

    def scores(self, members: list[np.ndarray]) -> np.ndarray:
        """What members are weighted by."""
        quality = np.array([self.quality(p, "inner") for p in members])
        return exponent_scores(quality, errors=not self.classes)


def stored(out: Path) -> dict[tuple[str, int], Fold]:
    """Folds of which all members are there."""
    files: dict[tuple[str, int], dict[tuple[str, str], Any]] = {}
    for path in out.glob("*-*-*-*.npz"):
        name, fold, view, kind = path.stem.split("-")
        with np.load(path) as file:
            files.setdefault((name, int(fold)), {})[view, kind] = dict(file)
    folds = {}
    for key, members in files.items():
        if len(members) < len(VIEWS) * len(MEMBER_TYPES):
            continue
        predicted = {}
        for member, file in members.items():
            y, domain, classes = file["y"], file["domain"], file["classes"]
            both = [file[which].astype(np.float64) for which in ("inner", "outer")]
            if len(classes):
                curve, _ = fit_curve(both[0], y, equal_weights(domain, y))
                both = [curve.probabilities(values) for values in both]
            predicted[member] = (both[0], both[1])
        y_new = np.searchsorted(classes, file["y_new"]) if len(classes) else file["y_new"]
        new = np.unique(file["domain_new"], return_inverse=True)[1]
        folds[key] = Fold(predicted, (y, domain), (y_new, new), bool(len(classes)))
    return folds


def weights_by(rule: str, fold: Fold, members: list[np.ndarray]) -> np.ndarray:
    """Weights of members from their predictions for source rows."""
    n = len(members)
    if rule == "equal":
        return np.full(n, 1 / n)
    if rule == "least squares":
        y, domains = fold.inner
        weights = np.sqrt(equal_weights(domains, y if fold.classes else None))[:, None]
        target = np.eye(members[0].shape[1])[y] if fold.classes else y[:, None]
        columns = np.stack([(weights * p).ravel() for p in members], axis=1)
        found = nnls(columns, (weights * target).ravel())[0]
        return found / found.sum() if found.sum() else np.full(n, 1 / n)
    scores = fold.scores(members)
    if rule.startswith("best"):
        chosen = np.argsort(-scores)[: int(rule.split()[1])]
        return np.isin(np.arange(n), chosen) / len(chosen)
    relative = np.exp((scores - scores.max()) / float(rule))
    return relative / relative.sum()


def combined(
    fold: Fold, plain: list, context: list, rule: str, share: float, adaptive: bool, logs: bool
) -> np.ndarray:
    """Quality on new domains of one way to put members together."""

    def mix(parts: list, weights: np.ndarray) -> np.ndarray:
        if logs and fold.classes:
            total = sum(
                w * np.log(np.maximum(p, 1e-6)) for w, p in zip(weights, parts, strict=True)
            )
            return np.exp(total) / np.exp(total).sum(axis=1, keepdims=True)
        return sum(w * p for w, p in zip(weights, parts, strict=True))

    mixes = []
    for names in (plain, context):
        if names:
            inner, outer = zip(*(fold.predicted[name] for name in names), strict=True)
            weights = weights_by(rule, fold, list(inner))
            mixes.append((mix(list(inner), weights), mix(list(outer), weights)))
    if not context:
        return fold.quality(mixes[0][1], "outer")
    shares = np.array([1 - share, share])
    if adaptive:
        scores = fold.scores([inner for inner, _ in mixes])
        shares *= np.exp((scores - scores.max()) / 0.02)
        shares /= shares.sum()
    return fold.quality(mix([outer for _, outer in mixes], shares), "outer")


def variants() -> dict[str, dict[str, Any]]:
    """Ways to put members together, by name."""
    base: dict[str, Any] = {"context": [], "rule": "0.02", "share": 0.4}
    base |= {"adaptive": False, "logs": False}

    def view(name: str, kinds: Iterable[str] = MEMBER_TYPES) -> list[tuple[str, str]]:
        return [(name, kind) for kind in kinds]

    levelled = [("clipped" if kind == "extra_trees" else "plain", kind) for kind in MEMBER_TYPES]
    three = ("boosting", "extra_trees", "invariant_ridge")
    found = {f"{kind} alone": base | {"plain": [("plain", kind)]} for kind in MEMBER_TYPES}
    found["extra_trees alone, far values levelled off"] = base | {
        "plain": [("clipped", "extra_trees")]
    }
    for rule in ("equal", "best 1", "best 2", "best 3", "least squares"):
        found[f"five kinds, {rule}"] = base | {"plain": view("plain"), "rule": rule}
    for rule in ("0.01", "0.02", "0.03", "0.05"):
        found[f"five kinds, exp(score / {rule})"] = base | {"plain": view("plain"), "rule": rule}
    found["the same at 0.02, logarithms averaged"] = base | {"plain": view("plain"), "logs": True}
    for kind in MEMBER_TYPES:
        rest = view("plain", [other for other in MEMBER_TYPES if other != kind])
        found[f"the same at 0.02, without {kind}"] = base | {"plain": rest}
    found["the same, far values levelled off for all"] = base | {"plain": view("clipped")}
    found["A: the same, far values levelled off for trees"] = base | {"plain": levelled}
    best = base | {"plain": levelled}
    for share in (0.2, 0.4, 0.6):
        found[f"A and three in context at {share}"] = best | {
            "context": view("context", three),
            "share": share,
        }
    found["A and three in context, share by score"] = best | {
        "context": view("context", three),
        "adaptive": True,
    }
    found["A and five in context at 0.4"] = best | {"context": view("context")}
    found["A and three with a summary, too, at 0.4"] = best | {"context": view("summary", three)}
    found["A and three with a summary, share by score"] = best | {
        "context": view("summary", three),
        "adaptive": True,
    }
    found["A and three in context, all in one"] = best | {
        "plain": levelled + view("context", three)
    }
    return found


def report(out: Path, path: Path) -> None:
    """Write what the ways to put members together come to."""
    folds = stored(out)
    sets = sorted({name for name, _ in folds})
    table: dict[str, np.ndarray] = {}
    for name, options in variants().items():
        row = []
        for data_set in sets:
            mine = [folds[key] for key in sorted(folds) if key[0] == data_set]
            quality = np.concatenate([combined(fold, **options) for fold in mine])
            row.append(np.mean(quality) if mine[0].classes else -np.mean(np.sqrt(quality)))
        table[name] = np.array(row)
    ranks = rankdata(-np.array(list(table.values())), axis=0).mean(axis=1)
    base = table["invariant_svm alone"]
    lines = [
        "# How the ensemble was put together",
        f"`python benchmarks/ensemble_design.py report`, from stored predictions on {len(folds)} "
        f"outer folds of the development sets ({', '.join(sets)}); the run was stopped after nine "
        "minutes on 16 cores. Each kind's parameters, and all weights, come from source domains "
        "left out. Balanced accuracy, or RMSE in deviations of the target. Gains over the "
        "invariant SVM are points, or per cent of RMSE. With seven sets, differences of a few "
        "tenths, and all of those of facies, are noise: what was decided is what the plan had, "
        "unless something was clearly better.",
        f"| | average rank | gain | {' | '.join(sets)} |",
        f"| --- | ---: | ---: | {' | '.join('---:' for _ in sets)} |",
    ]
    for (name, row), rank in zip(table.items(), ranks, strict=True):
        gains = 100 * np.where(row < 0, 1 - row / base, row - base)
        cells = " | ".join(f"{abs(value):.3f}" for value in row)
        lines.append(f"| {name} | {rank:.1f} | {gains.mean():+.1f} | {cells} |")
    decided = (
        "Decided: all five kinds at exp(score / 0.02), as planned; far values levelled off at 3 "
        "deviations for trees, whose thresholds are drawn between the extremes; three kinds in "
        "context, whose share begins at 0.4 and follows the score. Not told apart here: "
        "temperatures from 0.01 to 0.05, averages of probabilities and of logarithms, a fixed and "
        "a following share, and the best kind alone, which has no worse mean than the weighted "
        "average (its choice was right on these sets). Worse: equal weights, least squares, the "
        "best two, linear machines and SVMs in context, too. A summary of the domain helps some "
        "sets and costs others.\n\n"
        "Not measured: kernels have far values levelled off at 6 deviations, as a guard against "
        "outliers (3 was tried above), and grids were cut after this run to save time (half the "
        "trees while candidates are compared, 120 rounds of boosting and 63 bins, three costs of "
        "the SVM, landmarks drawn evenly from domains)."
    )
    path.write_text("\n\n".join([*lines[:2], "\n".join(lines[2:]), decided]) + "\n")
    print(path)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "report"])
    parser.add_argument("--data", type=Path, default=Path("build/leaderboard"))
    parser.add_argument("--out", type=Path, default=Path("build/design"))
    parser.add_argument("--sets", nargs="*")
    parser.add_argument("--views", nargs="*", default=list(VIEWS))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60.0)
    arguments = parser.parse_args()
    if arguments.what == "run":
        run(arguments)
    else:
        report(arguments.out, Path(__file__).with_name("ENSEMBLE_DESIGN.md"))


if __name__ == "__main__":
    main()
