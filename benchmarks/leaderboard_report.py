"""LEADERBOARD.md from the results of leaderboard.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from leaderboard_data import DATA_SETS, OUTER_FOLDS, SCORED_ROWS, TRAINING_ROWS

from domainwise.scoring.statistics import rank_methods

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
    "context": "ensemble, with the domain's rows",
}
#: What the ensemble is held against on every set.
REFERENCES = ("svm", "boosting", "linear", "lightgbm", "catboost")


@dataclass(frozen=True)
class SetScores:
    """Scores of one data set: larger is better; errors are negative.

    ``scores[method]`` has one entry for each domain of the folds that all methods have done.
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
        mine = [row for row in rows if row["set"] == name and row["method"] in methods]
        by_fold: dict[int, dict[str, dict[str, Any]]] = {}
        for row in mine:
            by_fold.setdefault(row["fold"], {})[row["method"]] = row
        complete = sorted(fold for fold, found in by_fold.items() if len(found) == len(methods))
        sign = 1 if mine and mine[0]["classes"] else -1
        scores, seconds = {}, {}
        for method in methods:
            cells = [by_fold[fold][method] for fold in complete]
            values = [
                cell["scores"][key] for cell in cells for key in sorted(cell["scores"], key=int)
            ]
            scores[method] = sign * np.array(values)
            seconds[method] = float(np.mean([cell["seconds"] for cell in cells])) if cells else 0.0
        return cls(name, mine[0]["classes"] if mine else 0, scores, seconds, len(complete))

    def mean(self, method: str) -> float:
        """Mean over domains."""
        return float(np.mean(self.scores[method]))

    def worst(self, method: str) -> float:
        """The worst domain."""
        return float(np.min(self.scores[method]))

    def gains(self, method: str, reference: str) -> np.ndarray:
        """Points of balanced accuracy, or per cent of the reference's mean error, by domain."""
        difference = self.scores[method] - self.scores[reference]
        return 100 * difference / (1.0 if self.classes else -self.mean(reference))

    def margin(self, method: str, reference: str) -> tuple[float, float]:
        """Mean gain and its standard error over domains."""
        gains = self.gains(method, reference)
        error = float(np.std(gains, ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else np.nan
        return float(np.mean(gains)), error


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def interval(values: np.ndarray, seed: int = 0) -> tuple[float, float, float]:
    """Mean over sets, and a 95 % interval by drawing sets with replacement."""
    draws = np.random.default_rng(seed).integers(len(values), size=(5000, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), [0.025, 0.975])
    return float(values.mean()), float(low), float(high)


def means_table(sets: list[SetScores], methods: Sequence[str], what: str) -> str:
    """Methods by sets; the best in bold."""
    value = SetScores.mean if what == "mean" else SetScores.worst
    columns = []
    for one in sets:
        found = np.array([value(one, method) for method in methods])
        columns.append(
            [f"**{abs(v):.3f}**" if v == found.max() else f"{abs(v):.3f}" for v in found]
        )
    header = ["", *(f"{s.name}{'' if s.classes else ' (RMSE)'}" for s in sets)]
    body = [
        [LABELS[method], *(column[i] for column in columns)] for i, method in enumerate(methods)
    ]
    return table(header, body)


def rank_table(sets: list[SetScores], methods: Sequence[str]) -> str:
    """Average ranks by mean and by worst domain, gains over the SVM, and time."""
    alone = [m for m in methods if m != "context"]
    together = [m for m in methods if m != "ensemble"]
    ranks: dict[str, list[float]] = {}
    for chosen, shown in ((alone, alone), (together, ["context"])):
        if "context" not in methods and shown == ["context"]:
            continue
        for value in (SetScores.mean, SetScores.worst):
            scores = np.array([[value(one, m) for m in chosen] for one in sets])
            found = rank_methods(scores, chosen).average_ranks
            for method in shown:
                ranks.setdefault(method, []).append(float(found[chosen.index(method)]))
    body = []
    for method in sorted(ranks, key=lambda m: ranks[m][0]):
        gains = np.array([one.margin(method, "svm")[0] for one in sets])
        mean, low, high = interval(gains)
        gain = "" if method == "svm" else f"{mean:+.1f} ({low:+.1f} to {high:+.1f})"
        seconds = float(np.mean([one.seconds[method] for one in sets]))
        better = "" if method == "svm" else f"{int(np.sum(gains > 0))} of {len(sets)}"
        first, second = ranks[method]
        cells = [f"{first:.1f}", f"{second:.1f}", gain, better, f"{seconds:.1f}"]
        body.append([LABELS[method], *cells])
    critical = rank_methods(
        np.array([[one.mean(m) for m in alone] for one in sets]), alone
    ).critical_difference
    header = [
        "",
        "average rank",
        "rank by worst domain",
        "gain over the SVM (95 % over sets)",
        "better than the SVM",
        "CPU s",
    ]
    note = (
        f"{len(alone)} methods on {len(sets)} sets; critical difference of average ranks "
        f"{critical:.1f}. The variant with the domain's rows is ranked in place of the other. "
        "Gains are points of balanced accuracy, or per cent of RMSE. CPU seconds are those of one "
        "search and fit."
    )
    return f"{table(header, body)}\n\n{note}"


def margins_table(sets: list[SetScores], method: str, times: float = 1.0) -> tuple[str, list[str]]:
    """The ensemble against the best of the reference methods on each set.

    Also the sets on which it is below by more than some standard errors.
    """
    body, below = [], []
    for one in sets:
        best = max((m for m in REFERENCES if m in one.scores), key=one.mean)
        mean, error = one.margin(method, best)
        short = mean < -times * error
        below += [one.name] if short else []
        verdict = "**below**" if short else ("above" if mean > error else "even")
        body.append([one.name, LABELS[best], f"{mean:+.1f}", f"{error:.1f}", verdict])
    return table(
        ["set", "best of SVM, linear, all boosting", "gain", "standard error", ""], body
    ), below


def aims(sets: list[SetScores], methods: Sequence[str]) -> str:
    """What was asked for on the confirmation sets, and what came out."""
    alone = [m for m in methods if m != "context"]
    rows = []
    for what, value in (("average", SetScores.mean), ("worst-domain", SetScores.worst)):
        scores = np.array([[value(one, m) for m in alone] for one in sets])
        found = rank_methods(scores, alone).average_ranks
        place = sorted(range(len(alone)), key=lambda i: found[i])
        first = alone[place[0]]
        mine = found[alone.index("ensemble")]
        rest = f"{LABELS[first]} has {found[place[0]]:.1f}" if first != "ensemble" else "the best"
        rows.append([f"best {what} rank", f"{mine:.1f} ({rest})", _yes(first == "ensemble")])
    for method, bound in (("ensemble", 1.5), ("context", 2.5)):
        gain = float(np.mean([one.margin(method, "svm")[0] for one in sets]))
        rows.append(
            [f"{LABELS[method]}: gain over the SVM ≥ {bound}", f"{gain:+.1f}", _yes(gain >= bound)]
        )
    for method, times in product(("ensemble", "context"), (1, 2)):
        below = margins_table(sets, method, times)[1]
        rows.append(
            [
                f"{LABELS[method]}: on no set below the best of SVM, linear and all boosting by "
                f"more than {('one standard error', 'two standard errors')[times - 1]}",
                ", ".join(below) or "none",
                _yes(not below),
            ]
        )
    if "autogluon" in methods:
        ahead = sum(one.margin("ensemble", "autogluon")[0] > 0 for one in sets)
        rows.append(
            [
                "ahead of AutoGluon on more than half of the sets",
                f"{ahead} of {len(sets)}",
                _yes(2 * ahead > len(sets)),
            ]
        )
    else:
        rows.append(["ahead of AutoGluon on more than half of the sets", "not installed here", "–"])
    return table(["asked for", "measured", "reached"], rows)


def _yes(reached: bool) -> str:
    return "yes" if reached else "**no**"


def write_report(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the file."""
    stages, compared = {}, {}
    for stage, names in DATA_SETS.items():
        present = {row["method"] for row in rows if row["set"] in names}
        compared[stage] = [name for name in LABELS if name in present]
        scores = [SetScores.of_rows(name, rows, compared[stage]) for name in names]
        stages[stage] = [one for one in scores if one.n_folds]
    parts = [
        "# Leaderboard",
        "`python benchmarks/leaderboard.py run`, then `report`. Every domain is left out, in at "
        f"most {OUTER_FOLDS} groups; methods learn from {TRAINING_ROWS} rows drawn evenly from the "
        "other domains and choose their parameters by holding out some of these; up to "
        f"{SCORED_ROWS} rows of each held-out domain are scored, domain by domain. Classes are "
        "measured by balanced accuracy, and all classifiers weigh them the same; numbers are "
        "measured by RMSE. The variant *with the domain's rows* sees all rows of a new domain, "
        "without targets, and all rows of the sources tell what their domains are like. All "
        "methods get the same rows to learn from.",
        "The ensemble was designed on the development sets (`ENSEMBLE_DESIGN.md`). Confirmation "
        "sets were run once, when everything was frozen; but the trials from which the ensemble's "
        "plan grew had looked at some of them. Before that run, quick methods were run on some "
        "confirmation folds to try the runner, and nothing was changed by what they gave. "
        "Rows of other packages were added after the run; the ensemble was not changed for them. "
        "Its own rows were made again after each change that came from development sets: values "
        "beyond the range of the sources become its end (`ENSEMBLE_STRESS.md`), symmetric trees "
        "for boosting (`ENSEMBLE_DESIGN.md`), cheaper searches, and context in batches of any "
        "size. Rivals were then run again on the same machine, CatBoost on another.",
        "LightGBM 4.7 and CatBoost 1.2.10 search their depth among 2 and 6, with balanced weights.",
        "AutoGluon 1.6.3, where it has a row: 40 seconds and one core a fit, domains as its "
        "`groups` (at most eight), balanced weights, no neural nets, no CatBoost.",
        "Folds that all methods have finished: "
        + ", ".join(f"{one.name} {one.n_folds}" for sets in stages.values() for one in sets)
        + ".",
    ]
    for stage in ("confirmation", "development"):
        sets, methods = stages[stage], compared[stage]
        if not sets:
            continue
        parts += [f"## {stage.capitalize()} sets", rank_table(sets, methods)]
        if stage == "confirmation":
            parts += ["### What was asked for", aims(sets, methods)]
        parts += ["### Means over domains", means_table(sets, methods, "mean")]
        parts += ["### Worst domains", means_table(sets, methods, "worst")]
        for method in ("ensemble", "context"):
            parts += [f"### {LABELS[method]}, by set", margins_table(sets, method)[0]]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(path)
