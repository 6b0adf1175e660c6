"""Writes LEADERBOARD.md from the results of leaderboard.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from data_sets import DATA_SETS, OUTER_FOLDS, SCORED_ROWS, TRAINING_ROWS

from reproduction.ranks import rank_methods

LABELS = {
    "constant": "constant",
    "linear": "linear",
    "svm": "SVM",
    "boosting": "boosting",
    "trees": "ExtraTrees",
    "lightgbm": "LightGBM",
    "catboost": "CatBoost",
    "autogluon": "AutoGluon",
    "coir": "COIR",
    "dica": "DICA",
    "dcmcv": "DCMCV",
    "invariant": "InvariantSVC",
    "invariantridge": "InvariantRidge",
    "ensemble": "ensemble",
    "context": "ensemble with context",
}
#: Methods that the ensemble is compared with on every data set.
REFERENCES = ("svm", "boosting", "linear", "lightgbm", "catboost")


@dataclass(frozen=True)
class SetScores:
    """Scores of one data set: larger is better; errors are negative.

    ``scores[method]`` has one entry for each domain of the folds that all methods have finished.
    """

    name: str
    classes: int
    scores: dict[str, np.ndarray]
    seconds: dict[str, float]
    n_folds: int

    @classmethod
    def of_rows(
        cls, name: str, rows: Sequence[dict[str, Any]], methods: Sequence[str]
    ) -> SetScores:
        own_rows = [row for row in rows if row["set"] == name and row["method"] in methods]
        by_fold: dict[int, dict[str, dict[str, Any]]] = {}
        for row in own_rows:
            by_fold.setdefault(row["fold"], {})[row["method"]] = row
        complete_folds = sorted(
            fold for fold, by_method in by_fold.items() if len(by_method) == len(methods)
        )
        sign = 1 if own_rows and own_rows[0]["classes"] else -1
        scores, seconds = {}, {}
        for method in methods:
            cells = [by_fold[fold][method] for fold in complete_folds]
            values = [
                cell["scores"][key] for cell in cells for key in sorted(cell["scores"], key=int)
            ]
            scores[method] = sign * np.array(values)
            seconds[method] = float(np.mean([cell["seconds"] for cell in cells])) if cells else 0.0
        n_classes = own_rows[0]["classes"] if own_rows else 0
        return cls(name, n_classes, scores, seconds, len(complete_folds))

    def mean(self, method: str) -> float:
        """Mean over domains."""
        return float(np.mean(self.scores[method]))

    def worst(self, method: str) -> float:
        """The worst domain."""
        return float(np.min(self.scores[method]))

    def gains(self, method: str, reference: str) -> np.ndarray:
        """Gain by domain, in percentage points of balanced accuracy or percent of RMSE."""
        difference = self.scores[method] - self.scores[reference]
        return 100 * difference / (1.0 if self.classes else -self.mean(reference))

    def margin(self, method: str, reference: str) -> tuple[float, float]:
        """Mean gain and its standard error over domains."""
        gains = self.gains(method, reference)
        error = float(np.std(gains, ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else np.nan
        return float(np.mean(gains)), error


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def interval(values: np.ndarray, seed: int = 0) -> tuple[float, float, float]:
    """Mean over sets, and a 95 % interval by drawing sets with replacement."""
    draws = np.random.default_rng(seed).integers(len(values), size=(5000, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), [0.025, 0.975])
    return float(values.mean()), float(low), float(high)


def means_table(sets: list[SetScores], methods: Sequence[str], statistic: str) -> str:
    """A table of methods and data sets; the best scores are bold."""
    value = SetScores.mean if statistic == "mean" else SetScores.worst
    columns = []
    for data_set in sets:
        scores = np.array([value(data_set, method) for method in methods])
        columns.append(
            [f"**{abs(v):.3f}**" if v == scores.max() else f"{abs(v):.3f}" for v in scores]
        )
    header = ["", *(f"{s.name}{'' if s.classes else ' (RMSE)'}" for s in sets)]
    body = [
        [LABELS[method], *(column[i] for column in columns)] for i, method in enumerate(methods)
    ]
    return table(header, body)


def rank_table(sets: list[SetScores], methods: Sequence[str]) -> str:
    """Average ranks by mean and by worst domain, gains over the SVM, and time."""
    without_context = [m for m in methods if m != "context"]
    with_context = [m for m in methods if m != "ensemble"]
    ranks: dict[str, list[float]] = {}
    for ranked_methods, new_methods in (
        (without_context, without_context),
        (with_context, ["context"]),
    ):
        if "context" not in methods and new_methods == ["context"]:
            continue
        for value in (SetScores.mean, SetScores.worst):
            scores = np.array([[value(data_set, m) for m in ranked_methods] for data_set in sets])
            average_ranks = rank_methods(scores, ranked_methods).average_ranks
            for method in new_methods:
                ranks.setdefault(method, []).append(
                    float(average_ranks[ranked_methods.index(method)])
                )
    body = []
    for method in sorted(ranks, key=lambda m: ranks[m][0]):
        gains = np.array([data_set.margin(method, "svm")[0] for data_set in sets])
        mean, low, high = interval(gains)
        gain = "" if method == "svm" else f"{mean:+.1f} ({low:+.1f} to {high:+.1f})"
        seconds = float(np.mean([data_set.seconds[method] for data_set in sets]))
        n_better = "" if method == "svm" else f"{int(np.sum(gains > 0))} of {len(sets)}"
        mean_rank, worst_rank = ranks[method]
        cells = [f"{mean_rank:.1f}", f"{worst_rank:.1f}", gain, n_better, f"{seconds:.1f}"]
        body.append([LABELS[method], *cells])
    critical = rank_methods(
        np.array([[data_set.mean(m) for m in without_context] for data_set in sets]),
        without_context,
    ).critical_difference
    header = [
        "",
        "average rank",
        "rank by worst domain",
        "gain over the SVM (95 % interval over data sets)",
        "better than the SVM",
        "CPU s",
    ]
    note = (
        f"{len(without_context)} methods on {len(sets)} data sets. The critical difference of "
        f"average ranks is {critical:.1f}. The variant with context is ranked in place of the "
        "ensemble. Gains are in percentage points of balanced accuracy, or in percent of RMSE. "
        "CPU seconds are for one search and fit."
    )
    return f"{table(header, body)}\n\n{note}"


def margins_table(sets: list[SetScores], method: str, times: float = 1.0) -> tuple[str, list[str]]:
    """Compare a method with the best reference method on each data set.

    Also returns the data sets on which it is worse by more than ``times`` standard errors.
    """
    body, lost_sets = [], []
    for data_set in sets:
        best = max((m for m in REFERENCES if m in data_set.scores), key=data_set.mean)
        mean, error = data_set.margin(method, best)
        is_below = mean < -times * error
        lost_sets += [data_set.name] if is_below else []
        verdict = "**below**" if is_below else ("above" if mean > error else "even")
        body.append([data_set.name, LABELS[best], f"{mean:+.1f}", f"{error:.1f}", verdict])
    return table(
        ["set", "best of SVM, linear and boosting methods", "gain", "standard error", ""], body
    ), lost_sets


def aims(sets: list[SetScores], methods: Sequence[str]) -> str:
    """Targets for the confirmation sets, set before the run, and the results."""
    without_context = [m for m in methods if m != "context"]
    rows = []
    for criterion, value in (
        ("average rank", SetScores.mean),
        ("rank by worst domain", SetScores.worst),
    ):
        scores = np.array([[value(data_set, m) for m in without_context] for data_set in sets])
        ranks = rank_methods(scores, without_context).average_ranks
        first_method = without_context[int(np.argmin(ranks))]
        own_rank = ranks[without_context.index("ensemble")]
        comparison = (
            f"{LABELS[first_method]}: {ranks.min():.1f}"
            if first_method != "ensemble"
            else "the best"
        )
        rows.append(
            [
                f"best {criterion}",
                f"{own_rank:.1f} ({comparison})",
                _yes(first_method == "ensemble"),
            ]
        )
    for method, bound in (("ensemble", 1.5), ("context", 2.5)):
        gain = float(np.mean([data_set.margin(method, "svm")[0] for data_set in sets]))
        rows.append(
            [f"{LABELS[method]}: gain over the SVM ≥ {bound}", f"{gain:+.1f}", _yes(gain >= bound)]
        )
    for method, times in product(("ensemble", "context"), (1, 2)):
        lost_sets = margins_table(sets, method, times)[1]
        rows.append(
            [
                f"{LABELS[method]}: on no set worse than the best of SVM, linear and boosting "
                f"methods by more than {('one standard error', 'two standard errors')[times - 1]}",
                ", ".join(lost_sets) or "none",
                _yes(not lost_sets),
            ]
        )
    if "autogluon" in methods:
        n_ahead = sum(data_set.margin("ensemble", "autogluon")[0] > 0 for data_set in sets)
        rows.append(
            [
                "ahead of AutoGluon on more than half of the sets",
                f"{n_ahead} of {len(sets)}",
                _yes(2 * n_ahead > len(sets)),
            ]
        )
    else:
        rows.append(["ahead of AutoGluon on more than half of the sets", "not installed here", "–"])
    return table(["target", "measured", "reached"], rows)


def _yes(reached: bool) -> str:
    return "yes" if reached else "**no**"


def write_report(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the file."""
    stages, compared_methods = {}, {}
    for stage, names in DATA_SETS.items():
        stored_methods = {row["method"] for row in rows if row["set"] in names}
        compared_methods[stage] = [name for name in LABELS if name in stored_methods]
        scores = [SetScores.of_rows(name, rows, compared_methods[stage]) for name in names]
        stages[stage] = [data_set for data_set in scores if data_set.n_folds]
    sections = [
        "# Leaderboard",
        "Written by `python benchmarks/leaderboard.py run`, then `report`. Every domain is held "
        f"out, in at most {OUTER_FOLDS} groups. Methods are trained on {TRAINING_ROWS} rows from "
        "the other domains (equal numbers from each, where possible), and choose their parameters "
        f"by holding out some of these domains. Up to {SCORED_ROWS} rows of each held-out domain "
        "are scored, separately for each domain. The metric is balanced accuracy for "
        "classification, with equal class weights in all classifiers, and RMSE for regression. "
        "The variant *with context* uses all rows of a new domain, without targets, and all rows "
        "of the source domains as context. All methods are trained on the same rows.",
        "The ensemble was designed on the development sets (`STUDIES.md`). The "
        "confirmation sets were run once, after the design was fixed. However, some of them had "
        "been used in earlier trials that led to the idea of the ensemble. Before the run, fast "
        "methods were run on some confirmation folds to test the script, and nothing was changed "
        "because of their results. Results of other packages were added after the run, and the "
        "ensemble was not changed because of them. The results of the ensemble were recomputed "
        "after each change motivated by the development sets: values outside the range of the "
        "source domains are clipped (`STUDIES.md`), boosting uses symmetric trees "
        "(`STUDIES.md`), searches are faster, and context accepts batches of any size. "
        "The other methods were then run again on the same machine, except CatBoost, which was "
        "run on another machine.",
        "CPU seconds of the ensemble were measured on a busy AMD EPYC, and those of the other "
        "methods on an Intel Xeon.",
        "LightGBM 4.7 and CatBoost 1.2.10 choose a depth of 2 or 6 on held-out domains, with "
        "balanced class weights.",
        "AutoGluon 1.6.3, in tables that include it, was run with 40 seconds and one core per "
        "fit, domains as its `groups` (at most eight), balanced weights, and without neural "
        "networks and CatBoost.",
        "Number of folds that all methods have finished: "
        + ", ".join(
            f"{data_set.name} {data_set.n_folds}" for sets in stages.values() for data_set in sets
        )
        + ".",
    ]
    for stage in ("confirmation", "development"):
        sets, methods = stages[stage], compared_methods[stage]
        if not sets:
            continue
        sections += [f"## {stage.capitalize()} sets", rank_table(sets, methods)]
        if stage == "confirmation":
            sections += ["### Targets set before the run", aims(sets, methods)]
        sections += ["### Means over domains", means_table(sets, methods, "mean")]
        sections += ["### Worst domains", means_table(sets, methods, "worst")]
        for method in ("ensemble", "context"):
            sections += [f"### {LABELS[method]}, by data set", margins_table(sets, method)[0]]
    path.write_text("\n\n".join(sections) + "\n", encoding="utf-8")
    print(path)
