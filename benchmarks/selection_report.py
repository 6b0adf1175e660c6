"""The study of selection as a page: scores, ranks, and differences to the tuned SVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from domainwise.models.registry import Method
from domainwise.scoring.statistics import compare, rank_methods

NAMES = {
    "facies": "facies",
    "gvhd": "GvHD",
    "parkinsons": "Parkinson's",
    "synthetic": "synthetic",
    "landmine": "LandMine",
    "oilwells": "oil wells",
    "cytof": "CyTOF",
    "hipc": "HIPC",
}
RIVAL = "svm"
READING = """\
`InvariantRidge` has the best average rank over the eight sets and `InvariantSVC` the second, before
COIR and the tuned SVM. `InvariantSVC`, a vote of five machines, loses to the tuned SVM on no set by
more than one standard error, which was the aim; its gain is small (significant on CyTOF and
Parkinson's). `InvariantRidge` gains more, two standard errors on LandMine and three on Parkinson's,
and loses 1.3 on the synthetic set and on HIPC. On Parkinson's a constant beats everything. With
eight sets the ranks of neighbours cannot be told apart.

In a projection the price for domains does not pay on these data: DCM at weight 1, the paper's
problem, loses to the SVM by more than one standard error on six sets; COIR, which ignores domains,
on HIPC and, just, on facies. Smaller weights lie between. DCMCV, which has COIR in its grid, is
below it: the weight it finds on a few domains is partly luck.

The default `domain_weight` of DCM is 1, as its signature in the design has it and as the paper's
problem needs; these figures speak for 0.1 or less. That of the invariant machines is 1 as well:
`InvariantSVC` above uses it.

The confirmation sets were run once, with the methods of commit c6e1699. They were not unseen: an
earlier study of single invariant machines (INVARIANT.md) had used them. Nothing was changed after.
"""
TRIED = """\
Methods were studied on the development sets, on several draws of their rows, by storing what every
candidate predicts on held-out domains and comparing ways to choose among them. Those explorations
are not kept here; what came of them is.

- *One winner.* Kernel ridge machines, SVMs, both kernels, all weights: whichever grid is searched,
  the candidate with the best inner score is no better than a tuned RBF SVM, and a larger grid is
  worse. Inner scores of five to ten domains do not tell good candidates from lucky ones.
- *Other rules for one winner*: scores smoothed along alpha, squared errors instead of hits, ranks,
  greedy ensembles. None helped on more than two of the four sets.
- *Averages.* The best alpha of every kernel and weight, and the mean of the ten best: better than
  one winner on every set, better than the SVM on facies, GvHD and Parkinson's, worse by up to a
  point on the synthetic set, where the hinge loss beats squares. This is `InvariantRidge`.
- *Votes.* The same with SVMs: mean decision values were uneven, votes of five machines at weight 1
  were not below the tuned SVM on any of five draws. This is `InvariantSVC` here.
- *Landmarks.* 500 uniform ones cost `InvariantRidge` a point on GvHD, where one class is rare: it
  now takes all rows up to 1,000, and k-means++ beyond.
- *The Laplacian kernel* is what gains on facies; on the synthetic set it loses. Both are offered.
- *Projections* (COIR, DICA, DCM, DCMCV) keep one direction fewer than there are classes. With a
  linear head they lose to the SVM on facies; an SVM as head does not bring that back.
"""


@dataclass(frozen=True)
class DataSetScores:
    """Scores of every method on every held-out domain of one data set; larger is better."""

    name: str
    measure: str
    rows: int
    scores: Mapping[str, Mapping[int, float]]
    seconds: float

    @classmethod
    def from_rows(cls, name: str, rows: Sequence[Mapping[str, Any]]) -> DataSetScores:
        """Collect the rows of a results file."""
        scores: dict[str, dict[int, float]] = {}
        for row in rows:
            known = {int(k): v for k, v in row["scores"].items() if np.isfinite(v)}
            scores.setdefault(row["method"], {}).update(known)
        seconds = sum(row["seconds"] for row in rows)
        return cls(name, rows[0]["measure"], rows[0]["rows"], scores, seconds)

    @property
    def sign(self) -> int:
        """-1 where the measure is an error, which is shown positive."""
        return -1 if self.measure.startswith("neg_") else 1

    def mean(self, method: str) -> float:
        """Mean over domains, each counting once."""
        return float(np.mean(list(self.scores[method].values())))

    def worst(self, method: str) -> float:
        """Score of the worst domain."""
        return min(self.scores[method].values())

    def difference(self, method: str, rival: str = RIVAL) -> tuple[float, float, float | None]:
        """Mean difference over domains, its standard error, and Wilcoxon's p."""
        mine, theirs = self.scores[method], self.scores[rival]
        gaps = np.array([mine[d] - theirs[d] for d in sorted(mine.keys() & theirs.keys())])
        error = float(gaps.std(ddof=1) / np.sqrt(len(gaps)))
        return float(gaps.mean()), error, compare(mine, theirs).p_value


def write_report(
    path: Path,
    stages: Mapping[str, Sequence[DataSetScores]],
    methods: Sequence[Method],
    weights: Sequence[Method],
    times: Sequence[Mapping[str, Any]],
) -> None:
    """Write the page."""
    lines = [
        "# Which method holds up on unseen domains",
        "",
        "Written by `benchmarks/selection.py report`. Nested leave-domains-out: parameters are"
        " chosen on source domains only, and every held-out domain is scored by itself. Balanced"
        " accuracy or accuracy, whichever `domainwise evaluate` takes by default; RMSE for"
        " Parkinson's. At most 1,000 training rows and 300 scored rows per domain.",
        "",
    ]
    for stage, found in stages.items():
        if found:
            lines += _stage(stage, found, methods)
    everything = [one for found in stages.values() for one in found]
    if len(everything) > 1:
        lines += ["## All sets", "", *_ranks(everything, methods)]
    lines += _weights(everything, weights)
    lines += ["## Reading", "", READING, "## What was tried", "", TRIED]
    if times:
        lines += [
            "## What a grid costs",
            "",
            "DCMCV scores all ridges and weights of one gamma and one split from the same products."
            " CPU seconds of one thread, medians of three rounds; 16 features, 2 classes, 10"
            " domains; a tenth as many rows are projected for scoring.",
            "",
            *_table(
                ["rows", "one fit at ridge 1e-4", "5 ridges × 5 weights", "ratio"],
                [
                    [
                        f"{t['rows']:,}",
                        f"{t['fit']:.2f} s",
                        f"{t['path']:.2f} s",
                        f"{t['path'] / t['fit']:.2f}",
                    ]
                    for t in times
                ],
            ),
            "",
        ]
    path.write_text("\n".join(lines).rstrip() + "\n")
    print(path)


def _stage(stage: str, found: Sequence[DataSetScores], methods: Sequence[Method]) -> list[str]:
    lines = [f"## {stage.capitalize()} sets", ""]
    lines += [
        f"- {NAMES[one.name]}: {one.rows:,} rows, {len(one.scores[RIVAL])} domains,"
        f" {one.measure.removeprefix('neg_').replace('_', ' ')}, {one.seconds:,.0f} s of searches"
        for one in found
    ]
    lines += ["", "Mean over domains, and the worst domain:", ""]
    lines += _table(
        ["method", *(NAMES[one.name] for one in found)],
        [
            [method.labels[0], *(_cell(one, method.key) for one in found)]
            for method in methods
            if any(method.key in one.scores for one in found)
        ],
    )
    lines += [
        "",
        "Difference to the tuned SVM (positive: better than it) ± standard error over domains, and"
        " p of Wilcoxon's signed-rank test:",
        "",
    ]
    lines += _table(
        ["method", *(NAMES[one.name] for one in found)],
        [
            [method.labels[0], *(_gap(one, method.key) for one in found)]
            for method in methods
            if method.key != RIVAL and any(method.key in one.scores for one in found)
        ],
    )
    return [*lines, "", *_ranks(found, methods), ""]


def _ranks(found: Sequence[DataSetScores], methods: Sequence[Method]) -> list[str]:
    """Average ranks over data sets, and where each method is more than one error below the SVM."""
    shared = [m for m in methods if all(m.key in one.scores for one in found)]
    table = np.array([[one.mean(m.key) for m in shared] for one in found])
    ranking = rank_methods(table, [m.labels[0] for m in shared])
    worst = rank_methods(
        np.array([[one.worst(m.key) for m in shared] for one in found]), ranking.methods
    )
    order = np.argsort(ranking.average_ranks, kind="stable")
    rows = []
    for place in order:
        method = shared[place]
        lost = [
            f"{NAMES[one.name]} ({-gap / error:.1f})"
            for one in found
            if method.key != RIVAL
            for gap, error, _ in [one.difference(method.key)]
            if error > 0 and gap < -(1 + 1e-9) * error
        ]
        rows.append(
            [
                method.labels[0],
                f"{ranking.average_ranks[place]:.2f}",
                f"{worst.average_ranks[place]:.2f}",
                ", ".join(lost) or ("" if method.key == RIVAL else "none"),
            ]
        )
    p = "" if ranking.p_value is None else f" Friedman's p = {ranking.p_value:.2g};"
    return [
        *_table(
            [
                "method",
                "average rank, mean score",
                "average rank, worst domain",
                "loses to the SVM by more than one standard error on (errors)",
            ],
            rows,
        ),
        "",
        f"Ranks over {len(found)} data sets, 1 is best.{p} average ranks closer than"
        f" {ranking.critical_difference:.1f} cannot be told apart at the 5 % level.",
        "",
    ]


def _weights(found: Sequence[DataSetScores], weights: Sequence[Method]) -> list[str]:
    """DCM at fixed weights beside COIR, which is DCM without domains."""
    keys = {"coir": "0 (COIR)", "dcm": "1"}
    keys |= {method.key: method.key.removeprefix("dcm@") for method in weights}
    order = [key for key in ("coir", "dcm@0.01", "dcm@0.1", "dcm", "dcm@10.0") if key in keys]
    rows = []
    for key in order:
        cells, ratios = [], []
        for one in found:
            if key not in one.scores:
                cells.append("")
                continue
            gap, error, _ = one.difference(key, "coir")
            ratios.append(gap / error if error > 0 else 0.0)
            cells.append(f"{one.sign * one.mean(key):.3f} ({gap:+.3f} ± {error:.3f})")
        rows.append([keys[key], *cells, f"{np.mean(ratios):+.2f}" if ratios else ""])
    return [
        "## The weight of DCM",
        "",
        "Gamma and ridge searched, linear head. Mean score, and the difference to COIR ± standard"
        " error (positive: better); last the mean difference in standard errors.",
        "",
        *_table(["weight", *(NAMES[one.name] for one in found), "errors, mean"], rows),
        "",
    ]


def _cell(one: DataSetScores, method: str) -> str:
    if method not in one.scores:
        return ""
    return f"{one.sign * one.mean(method):.3f} ({one.sign * one.worst(method):.3f})"


def _gap(one: DataSetScores, method: str) -> str:
    if method not in one.scores:
        return ""
    gap, error, p = one.difference(method)
    text = f"{gap:+.3f} ± {error:.3f}"
    return text if p is None else f"{text}, {p:.2g}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]
