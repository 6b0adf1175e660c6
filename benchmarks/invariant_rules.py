"""Selection rules for the stored scores of ``invariant.py``, and the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata, wilcoxon

Array = np.ndarray


@dataclass(frozen=True)
class Candidate:
    """Parameters of one model; gamma is a multiple of the median rule."""

    C: float
    gamma: float
    weight: float
    conditional: bool


@dataclass
class DataSetResult:
    """Scores of every candidate on every held-out domain."""

    name: str
    regression: bool
    grid: list[Candidate]
    records: list[dict[str, Any]]

    @cached_property
    def held(self) -> dict[tuple[int, ...], dict[str, Array]]:
        return {
            tuple(record["held"]): {d: np.array(s) for d, s in record["scores"].items()}
            for record in self.records
        }

    @property
    def folds(self) -> list[list[str]]:
        return [[str(name) for name in fold] for fold in self.records[0]["folds"]]

    @property
    def n_rows(self) -> int:
        return int(self.records[0]["rows"])

    def inner(self, outer: int) -> Array:
        """Scores (candidates, source domains); each domain is held out with the outer fold."""
        columns = []
        for fold, domains in enumerate(self.folds):
            if fold != outer:
                scores = self.held[tuple(sorted((outer, fold)))]
                columns += [scores[domain][: len(self.grid)] for domain in domains]
        return np.array(columns).T

    def outer(self, rule: Rule) -> Array:
        """Scores on each domain of the candidate that a rule chooses for its fold."""
        scores = []
        for fold, domains in enumerate(self.folds):
            candidate = rule(self.inner(fold), self.grid)
            scores += [self.held[(fold,)][domain][candidate] for domain in domains]
        return np.array(scores)

    def choices(self, rule: Rule) -> list[Candidate]:
        return [self.grid[rule(self.inner(fold), self.grid)] for fold in range(len(self.folds))]

    def best_outer(self) -> Array:
        """Score of the best single candidate in hindsight: an upper bound, not a rule."""
        columns = [
            self.held[(fold,)][domain][: len(self.grid)]
            for fold, domains in enumerate(self.folds)
            for domain in domains
        ]
        table = np.array(columns).T
        return table[table.mean(axis=1).argmax()]

    def constant(self) -> Array:
        """For regression, scores of predicting the mean of the source domains."""
        return np.array(
            [
                self.held[(fold,)][domain][-1]
                for fold, domains in enumerate(self.folds)
                for domain in domains
            ]
        )


#: A rule maps inner scores (candidates, domains) to the index of the chosen candidate.
Rule = Callable[[Array, list[Candidate]], int]


def best_of(keep: Callable[[Candidate], bool]) -> Rule:
    """Candidate with the best mean over source domains; the first one if scores are equal."""

    def rule(scores: Array, grid: list[Candidate]) -> int:
        mean = scores.mean(axis=1)
        mean[[not keep(c) for c in grid]] = -np.inf
        return int(mean.argmax())

    return rule


def one_standard_error(towards: str) -> Rule:
    """Largest (or smallest) weight within one paired standard error of the best candidate."""

    def rule(scores: Array, grid: list[Candidate]) -> int:
        best = int(scores.mean(axis=1).argmax())
        losses = scores[best] - scores
        error = losses.std(axis=1, ddof=1) / np.sqrt(scores.shape[1])
        eligible = np.flatnonzero(losses.mean(axis=1) <= error)
        weights = np.array([grid[i].weight for i in eligible])
        chosen_weight = weights.max() if towards == "larger" else weights.min()
        eligible = eligible[weights == chosen_weight]
        return int(eligible[scores[eligible].mean(axis=1).argmax()])

    return rule


def by_rank(scores: Array, grid: list[Candidate]) -> int:
    """Best mean rank over source domains, so that all domains have the same weight."""
    return int(rankdata(scores, axis=0).mean(axis=1).argmax())


def weight_first(scores: Array, grid: list[Candidate]) -> int:
    """Choose the weight by the mean of its three best (C, gamma), then C and gamma for it."""
    mean = scores.mean(axis=1)
    kinds = [(c.weight, c.conditional) for c in grid]
    strength = {
        kind: np.sort(mean[[k == kind for k in kinds]])[-3:].mean() for kind in dict.fromkeys(kinds)
    }
    kind = max(strength, key=lambda k: strength[k])
    return best_of(lambda c: (c.weight, c.conditional) == kind)(scores, grid)


def svm_first(scores: Array, grid: list[Candidate]) -> int:
    """Choose C and gamma for the SVM without penalty, then the weight for them."""
    svm = grid[best_of(lambda c: c.weight == 0)(scores, grid)]
    return best_of(lambda c: (c.C, c.gamma) == (svm.C, svm.gamma))(scores, grid)


def fixed(weight: float, conditional: bool) -> Rule:
    """A default weight: only C and gamma are chosen."""
    return best_of(lambda c: (c.weight, c.conditional) == (weight, conditional))


SVM = best_of(lambda c: c.weight == 0)
RULES: dict[str, Rule] = {
    "best, marginal weights": best_of(lambda c: not c.conditional),
    "best, conditional weights": best_of(lambda c: c.conditional or c.weight == 0),
    "best": best_of(lambda c: True),
    "one standard error to larger weights": one_standard_error("larger"),
    "one standard error to smaller weights": one_standard_error("smaller"),
    "best mean rank over domains": by_rank,
    "weight first (mean of its three best)": weight_first,
    "C and gamma of the SVM, then the weight": svm_first,
}
for _conditional in (False, True):
    for _weight in (0.01, 0.1, 1.0, 10.0):
        _kind = "conditional" if _conditional else "marginal"
        RULES[f"weight {_weight:g}, {_kind}"] = fixed(_weight, _conditional)


def usable(rule: str, result: DataSetResult) -> bool:
    return not (result.regression and "conditional" in rule)


def gain(result: DataSetResult, rule: Rule) -> tuple[float, float, float, Array]:
    """Mean gain over the tuned SVM with its standard error, paired p-value, and the scores."""
    scores = result.outer(rule)
    difference = scores - result.outer(SVM)
    error = float(difference.std(ddof=1) / np.sqrt(len(difference)))
    with np.errstate(invalid="ignore"):
        p = 1.0 if not difference.any() else float(wilcoxon(difference).pvalue)
    return float(difference.mean()), error, p, scores


# The report ---------------------------------------------------------------------------------------

#: Chosen on the development sets, before the confirmation sets were run.
CHOSEN = "best, marginal weights"
DEFAULT = "weight 1, marginal"


INTRODUCTION = """\
Written by `benchmarks/invariant.py report`. Scores are balanced accuracies of an SVM with balanced
class weights, and RMSE for Parkinson's. In nested leave-domains-out cross-validation, C (0.1, 1,
10), gamma (0.3 or 1 times the median rule), `domain_weight` (0, 0.01, 0.1, 1, 10) and `conditional`
are chosen on source domains only. A gain is the difference from the tuned SVM (the same search with
`domain_weight=0`), paired by held-out domain, with its standard error; it is positive if the
invariant kernel is better. p is the p-value of Wilcoxon's signed-rank test over domains. Standard
errors and p-values are approximate, because the models of different domains share training
rows.""".splitlines()


READING = """\
The gains on the development sets were not confirmed. Searching the weight improved scores slightly
on all four development sets, by one to two and a half standard errors on the real sets. On the
confirmation sets, it changed nothing on oil wells and CyTOF, and lost 1.3 standard errors on
LandMine and one on HIPC; the target was to lose no more than one. The default weight lost two
standard errors on CyTOF (p = 0.04) and gained one on HIPC. No gain is significant over domains. The
confirmation sets were run with 40 to 100 rows per domain and five folds, LandMine with about four
mines per domain. Inner scores are then noisy, and a search over more candidates is affected more by
this noise. On Parkinson's, the tuned SVR is worse than a constant prediction, and a larger weight
moves its predictions towards a constant.
Nothing was changed after the results on the confirmation sets were seen.""".splitlines()
TRIED = """\
- To run the study in less than an hour on a busy machine, at most 20 to 150 rows per domain were
  used (the limit of the protocol is 300), and the domains of the later sets were assigned to five
  folds.
- The first grid also contained C=100 and a gamma of 3 times the median rule. On facies and GvHD the
  search never chose C=100 and rarely this gamma. To save time, both were dropped while Parkinson's
  was running, and the scores stored until then were reduced to the smaller grid.
- All selection rules use the same stored scores (tables above). Choosing the smallest weight within
  one standard error of the best removes the gain. Choosing the largest such weight, ranks over
  domains, and choosing the weight before C and gamma are not better than the best mean. Choosing C
  and gamma for the SVM first is as good on real data and worse on the synthetic set. The best mean
  over marginal weights was selected: it gains on every development set, and its grid is half as
  large.
- Default weights, with C and gamma searched: 0.01 has little effect, 10 loses on GvHD, and 0.1 and
  1 are close. `domain_weight=1.0` was not changed, because it did not lose on any development set.
- After this study: with few domains, noise affects every selection rule. Therefore, the best models
  now vote (`InvariantSearchCV(n_average=5)`, one model for each of the five best kernels, weight
  1). SELECTION.md compares this with other methods, on more rows.
- `InvariantSearchCV` saves only the time that is not spent in libsvm. On facies, with nine classes,
  libsvm takes almost half of the time of a candidate, so the search can be only slightly more than
  twice as fast.
""".splitlines()


def write_report(
    path: Path,
    development: dict[str, DataSetResult],
    confirmation: dict[str, DataSetResult],
    searches: list[dict[str, Any]],
) -> None:
    lines = ["# Scores of the invariant kernel", "", *INTRODUCTION, ""]
    if searches:
        lines += ["## One kernel evaluation per split", "", *_search_table(searches), ""]
    stages = [
        ("Development sets", development, "The rule was chosen on these data sets."),
        (
            "Confirmation sets",
            confirmation,
            "These data sets were run once, after the rule and the default had been fixed in a "
            "commit.",
        ),
    ]
    for title, results, note in stages:
        if results:
            lines += [
                f"## {title}",
                "",
                note,
                "",
                *_main_table(results),
                "",
                *_rule_table(results),
                "",
            ]
            lines += [
                "Chosen weights (how often, over held-out folds):",
                "",
                *_choices(results),
                "",
            ]
    if confirmation:
        lines += ["## Conclusions", "", *READING, ""]
    lines += ["## Alternatives that were tried", "", *TRIED]
    path.write_text("\n".join(lines).rstrip() + "\n")


def _search_table(searches: list[dict[str, Any]]) -> list[str]:
    lines = [
        "The table compares `InvariantSearchCV` with `GridSearchCV` on the same grid (five "
        "weights, marginal",
        "and conditional, three C, one gamma), by the CPU time of one run on one thread.",
        "",
        "| data | rows | splits | candidates | speed-up | same best candidate | largest "
        "score difference |",
        "|---|---|---|---|---|---|---|",
    ]
    for s in searches:
        lines.append(
            f"| {s['data']} | {s['rows']:,} | {s['splits']} | {s['candidates']} "
            f"| {s['plain'] / s['path']:.1f} | {'yes' if s['same_winner'] else 'no'} "
            f"| {s['largest_difference']:.1g} |"
        )
    return lines


def _main_table(results: dict[str, DataSetResult]) -> list[str]:
    lines = [
        f"Rule: *{CHOSEN}*. Default: *{DEFAULT}*, C and gamma searched.",
        "",
        "| data | rows | domains | SVM mean (worst) | rule mean (worst) | gain | p "
        "| default mean (worst) | gain | p |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, result in results.items():
        sign = -1 if result.regression else 1
        cells = []
        for rule in (CHOSEN, DEFAULT):
            mean, error, p, scores = gain(result, RULES[rule])
            cells.append(f"{_mean_worst(scores, sign)} | {mean:+.3f} ± {error:.3f} | {p:.2f}")
        svm = result.outer(SVM)
        constant_note = f"; constant {-result.constant().mean():.3f}" if result.regression else ""
        lines.append(
            f"| {name} | {result.n_rows:,} | {len(svm)} | {_mean_worst(svm, sign)}{constant_note} "
            f"| {' | '.join(cells)} |"
        )
    return lines


def _mean_worst(scores: Array, sign: int) -> str:
    return f"{sign * scores.mean():.3f} ({sign * scores.min():.3f})"


def _rule_table(results: dict[str, DataSetResult]) -> list[str]:
    lines = [
        "Gain of every rule:",
        "",
        f"| rule | {' | '.join(results)} | mean, in standard errors |",
        f"|---|{'---|' * (len(results) + 1)}",
    ]
    for name, rule in RULES.items():
        cells, gains_in_errors = [], []
        for result in results.values():
            if not usable(name, result):
                cells.append("")
                continue
            mean, error, _, _ = gain(result, rule)
            cells.append(f"{mean:+.3f} ± {error:.3f}")
            gains_in_errors.append(mean / error if error > 0 else 0.0)
        lines.append(f"| {name} | {' | '.join(cells)} | {np.mean(gains_in_errors):+.2f} |")
    return lines


def _choices(results: dict[str, DataSetResult]) -> list[str]:
    lines = []
    for name, result in results.items():
        counts = Counter(
            f"{c.weight:g}{' conditional' if c.conditional else ''}"
            for c in result.choices(RULES[CHOSEN])
        )
        choices = ", ".join(f"{kind} ({count})" for kind, count in sorted(counts.items()))
        lines.append(f"- {name}: {choices}")
    return lines
