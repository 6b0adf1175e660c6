"""The gain from a few labels from a new site, on every data set: writes ADAPT.md.

    python benchmarks/adapt.py run [--sets NAME ...] [--sizes 600 5000]    fits ensembles
    python benchmarks/adapt.py report                                      writes ADAPT.md

Data sets, sizes and held-out domains are those of growth.py. An ensemble without context is fitted
to the training rows. Each held-out domain is treated as the new site: the labels of random rows are
drawn ten times, and the other rows of the domain are scored (at most 500 rows of a domain are
used). An interrupted run continues where it stopped.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import growth
import numpy as np

from domainwise import DomainEnsembleClassifier, DomainEnsembleRegressor
from domainwise.estimators.adaptation.corrections import (
    LABEL_COUNTS,
    SourceOutputs,
    learn_prior,
)
from domainwise.estimators.adaptation.site import (
    SiteLabels,
    domain_scores,
    label_gains,
    loss_score,
    outputs_score,
    site_rule,
)
from domainwise.held_out.calibration.decisions import rule_for
from domainwise.held_out.scoring.measures import counts_by_domain

HERE, OUT = Path(__file__).parent, Path("domainwise-results/adapt")
DRAWS, SIZES, GROUPS = 10, (600, 5000), 2
#: Smallest number of scored rows per site, and numbers of labels that tables show.
MIN_SCORED, NUMBERS_LABELS, CLASSES_LABELS = 10, 10, 20
#: A data set with fewer rows than this share of a size is left out at this size.
growth.LEAST_SHARE = 0.3
Row = list[str]


def fit(name: str, size: int, group: int, out: Path) -> str:
    """Fit an ensemble, and store its outputs for held-out source rows and for the new sites."""
    file = out / f"{name}.{size}.{group}.npz"
    if file.exists():
        return f"{file.name} already exists"
    task = growth.make_task(growth.Case(name, size, group, "ensemble"))
    if task is None:
        return f"{file.name}: too few rows"
    X, y, domain = task.sources
    model: Any = DomainEnsembleRegressor(context=False, random_state=0)
    if task.n_classes:
        model = DomainEnsembleClassifier(context=False, random_state=0)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, sample_domain=domain)
        X_new = task.numbers[task.test]
        outputs = model._with_within(model._outputs(X_new, None), X_new)
    source = model._source_outputs()["plain"]
    arrays = {"y": source.y, "domain": source.domain_codes, "outputs": source.outputs}
    new = {"y_new": task.y[task.test], "outputs_new": outputs}
    if task.n_classes:
        new["y_new"] = np.searchsorted(model.classes_, new["y_new"])
    codes = np.unique(task.domain[task.test], return_inverse=True)[1]
    np.savez_compressed(file, **arrays, **new, domain_new=codes)
    return f"{file.name}: {time.perf_counter() - start:.1f} s"


def measures(y: np.ndarray, outputs: np.ndarray, rule: Any) -> np.ndarray:
    """RMSE; or log loss, balanced accuracy, absolute ln O/E, and calibration slope."""
    if rule is None:
        return np.array([-loss_score(outputs, y)])
    decided = rule.codes(outputs) == y
    recalls = [decided[y == code].mean() for code in np.unique(y)]
    observed, expected = np.eye(outputs.shape[1])[y].sum(axis=0), outputs.sum(axis=0)
    ratios = np.abs(np.log((observed + 0.5) / (expected + 0.5)))
    ratio = ratios[1] if len(ratios) == 2 else ratios.mean()
    return np.array([-loss_score(outputs, y), np.mean(recalls), ratio, slope(y, outputs)])


def slope(y: np.ndarray, outputs: np.ndarray) -> float:
    """Slope of the log-odds of the last class; NaN with fewer than five rows of either kind."""
    is_last, p = y == outputs.shape[1] - 1, np.clip(outputs[:, -1], 1e-6, 1 - 1e-6)
    if min(is_last.sum(), (~is_last).sum()) < 5:
        return np.nan
    values, terms = np.column_stack([np.ones(len(y)), np.log(p / (1 - p))]), np.array([0.0, 1.0])
    for _ in range(25):
        fitted = 1 / (1 + np.exp(-values @ terms))
        hessian = (values * (fitted * (1 - fitted))[:, None]).T @ values + 1e-3 * np.eye(2)
        terms = terms + np.linalg.solve(
            hessian, values.T @ (is_last - fitted) - 1e-3 * (terms - [0, 1])
        )
    return float(terms[1])


class Fold:
    """Outputs of one fitted ensemble."""

    def __init__(self, file: Path) -> None:
        with np.load(file) as arrays:
            self.source = SourceOutputs(
                arrays["y"], arrays["domain"], arrays["outputs"].astype(float)
            )
            new = arrays["y_new"], arrays["domain_new"], arrays["outputs_new"].astype(float)
            self.new = SourceOutputs(*new)
        self.rule, self.scorer = None, outputs_score(None, None)
        n_classes = self.source.outputs.shape[1]
        if self.source.has_classes:
            counts = counts_by_domain(self.source.y, self.source.domain_codes, n_classes)
            self.rule = rule_for("auto", counts, "balanced_accuracy")
            self.scorer = outputs_score("balanced_accuracy", np.arange(n_classes), self.rule)
        self.prior: Any = learn_prior(self.source)
        self.baseline: Any = None  # level and slope only, for a continuous target
        if not self.source.has_classes:
            plain = self.source.outputs[:, :1]
            labels = self.source.y, self.source.domain_codes
            self.baseline = learn_prior(SourceOutputs(*labels, plain))

    @cache  # noqa: B019
    def scores(self, n_labels: int, first: bool = False) -> np.ndarray:
        """Measures without labels, with level and slope only (or without labels), and as now."""
        results = []
        for rows in self.new.rows_by_domain(n_labels + MIN_SCORED).values():
            rng, draws = np.random.default_rng(0), []
            for _ in range(1 if first else DRAWS):
                order = rows if first else rng.permutation(rows)
                draws.append(
                    self.draw(self.new.take(order[:n_labels]), self.new.take(order[n_labels:]))
                )
            results.append(np.nanmean(draws, axis=0))
        return np.array(results)

    def draw(self, labelled: SourceOutputs, scored: SourceOutputs) -> list[np.ndarray]:
        """Measures of one draw."""
        n_columns = scored.outputs.shape[1] if scored.has_classes else 1
        plain = scored.outputs[:, :n_columns]
        results = [measures(scored.y, plain, self.rule)]
        for prior, columns in ((self.baseline, n_columns), (self.prior, None)):
            if prior is None:
                continue
            outputs = labelled.outputs[:, :columns]
            correction = SiteLabels.from_rows(outputs, labelled.y).correction(prior)
            rule = site_rule(self.rule, prior, outputs, correction)
            corrected = prior.apply(scored.outputs[:, :columns], correction)
            results.append(measures(scored.y, corrected, rule))
        return results if self.baseline is not None else [results[0], *results]

    def predicted(self) -> list[list[tuple[int, str, bool]]]:
        """Whether prediction intervals contain the mean score of the new sites."""
        n_domains = int(self.source.domain_codes.max()) + 1
        scoring = "balanced_accuracy" if self.rule else None
        score = self.scorer, domain_scores(self.source, self.scorer, n_domains), scoring
        gains, results = label_gains(self.source, score, self.rule), []
        for count in (0, 5, 10, 20, 50):
            observed = self.scores(count)
            if len(observed) < 1:
                continue
            values = {"loss": -observed[:, 2, 0]}
            if self.rule is not None:
                values["score"] = observed[:, 2, 1]
            for name, scores in values.items():
                low, high = gains[name].table(len(scores))[LABEL_COUNTS.index(count), 2:]
                alone = gains[name].table(1)[LABEL_COUNTS.index(count), 2:]
                if np.isfinite(low):
                    inside = [low <= scores.mean() <= high]
                    inside += [(alone[0] <= scores) & (scores <= alone[1])]
                    results.append((count, name, *inside))
        return results


def table(header: Row, rows: list[Row]) -> list[str]:
    """A Markdown table."""
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)] + [""]


def report(out: Path) -> None:
    """Write ADAPT.md."""
    studies: dict[tuple[str, int], list[Fold]] = defaultdict(list)
    for file in sorted(out.glob("*.npz")):
        name, size, _ = file.stem.split(".")
        studies[name, int(size)].append(Fold(file))
    numbers, classes, inside = [], [], []
    changes: dict[str, list[float]] = defaultdict(list)
    for (name, size), folds in sorted(studies.items(), key=lambda item: (item[0][1], item[0][0])):
        is_classes = folds[0].rule is not None
        count = CLASSES_LABELS if is_classes else NUMBERS_LABELS
        title = f"{name}{' *' * (name in growth.CONFIRMATION)}, {size:,}"
        parts = [scores for fold in folds if len(scores := fold.scores(count))]
        if not parts:
            continue
        sites = np.concatenate(parts)
        before, level, now = np.nanmean(sites, axis=0)
        change = 100 * (now[0] / before[0] - 1)
        error = 100 * sites[:, 2, 0].__sub__(sites[:, 0, 0]).std() / len(sites) ** 0.5 / before[0]
        others = []
        for other in (5, 50):
            parts = [s for fold in folds if len(s := fold.scores(other))]
            mean = np.nanmean(np.concatenate(parts), axis=0) if parts else np.full((3, 1), np.nan)
            others.append(f"{100 * (mean[2, 0] / mean[0, 0] - 1):+.1f}" if parts else "–")
        first = np.concatenate([s for f in folds if len(s := f.scores(count, first=True))])
        first_mean = np.nanmean(first, axis=0)
        others.append(f"{100 * (first_mean[2, 0] / first_mean[0, 0] - 1):+.1f}")
        if is_classes:
            kind = "classes"
            row = [f"{before[0]:.3f}", f"{change:+.1f} ± {error:.1f}", *others]
            row += [f"{100 * (now[1] - before[1]):+.1f}", f"{before[2]:.2f} → {now[2]:.2f}"]
            classes.append([title, *row, f"{before[3]:.2f} → {now[3]:.2f}"])
            changes["oe"].append(now[2] - before[2])
        else:
            kind, old = "numbers", 100 * (level[0] / before[0] - 1)
            row = [f"{before[0]:.3f}", f"{old:+.1f}", f"{change:+.1f} ± {error:.1f}", *others]
            numbers.append([title, *row])
            changes["beyond"].append(change - old)
        changes[kind].append(change)
        inside += [(title, *entry) for fold in folds for entry in fold.predicted()]
    means = {key: float(np.mean(values)) for key, values in changes.items()}
    shares = [
        np.mean([entry[3] for entry in inside]),
        np.mean(np.concatenate([e[4] for e in inside])),
    ]
    lines = [
        "# How much do a few labels from a new site improve scores?",
        "",
        f"Ten labels change the ensemble's RMSE by {min(changes['numbers']):.0f} to "
        f"{max(changes['numbers']):.0f} % (mean {means['numbers']:.1f} %) on "
        f"{len(numbers)} regression tables, and twenty labels change its log loss by "
        f"{min(changes['classes']):.0f} to {max(changes['classes']):+.0f} % (mean "
        f"{means['classes']:.1f} %) on {len(classes)} classification tables.",
        "",
        "A table is a data set with 600 or 5,000 training rows; a star marks confirmation sets. "
        "The method was tuned on the tables without a star, so their changes may be optimistic. "
        "Written by `python benchmarks/adapt.py report`, from ensembles without context that were "
        "fitted without one of four groups of domains, or without each of two. Changes are in "
        "percent of the loss without labels, with the standard error of paired differences over "
        "sites. Labels are those of random rows, unless the column says that they come from the "
        "first rows of a site.",
        "",
        "## Regression: change in RMSE, in percent",
        "",
        "*Level and slope* is the correction of earlier versions; *now*, a model of differences "
        "inside a site is added where held-out domains show that it helps. This changes the "
        f"result by {means['beyond']:+.1f} points on average, and by at most "
        f"{max(changes['beyond']):+.1f}.",
        "",
    ]
    header = ["", "RMSE", "10 labels: level and slope", "now", "5", "50", "first 10 rows"]
    lines += table(header, numbers)
    lines += [
        "## Classification: change in log loss, in percent",
        "",
        "O/E is the ratio of observed and expected events: the table shows the mean of |ln O/E| "
        "over sites, and the mean calibration slope (of the last class), without labels and with "
        f"twenty. |ln O/E| changes by {means['oe']:+.3f} on average, and by at most "
        f"{max(changes['oe']):+.3f}.",
        "",
    ]
    header = ["", "log loss", "20 labels", "5", "50", "first 20 rows", "balanced accuracy, points"]
    lines += table([*header, "\\|ln O/E\\|", "slope"], classes)
    lines += [
        "## Predicted and observed scores",
        "",
        f"The 90 % prediction intervals of `label_gain` contain the mean score of the new sites "
        f"in {100 * shares[0]:.0f} % of {len(inside)} cases (a fitted ensemble, a number of "
        f"labels, and the loss or the balanced accuracy; `n_sites` is the number of new sites), "
        f"and the score of a single new site in {100 * shares[1]:.0f} %.",
        "",
    ]
    (HERE / "ADAPT.md").write_text("\n".join(lines), encoding="utf-8")


def main() -> None:
    """Run a stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=("run", "report"))
    sets = [name for name in growth.ALL_SETS if name != "large_kc_house"]
    parser.add_argument("--sets", nargs="+", default=sets, choices=sets)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    if options.stage == "report":
        report(options.out)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    for group in range(options.groups):
        for size in options.sizes:
            for name in options.sets:
                print(fit(name, size, group, options.out), flush=True)


if __name__ == "__main__":
    main()
