"""The gain from a few labels from a new site, on every data set.

    python benchmarks/data_sets.py                              needs the data and pandas
    python benchmarks/adapt.py run --workers 2                  fits ensembles, stores their outputs
    python benchmarks/adapt.py report                           writes ADAPT.md

Ensembles are trained on 600 rows, with default and with balanced class
weights. Each domain of a held-out fold is treated as the new site: labels are drawn at random (20
draws), or come from the first rows in table order, and the other rows of the domain are scored.
An interrupted run continues where it stopped.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from data_sets import FOLDER, STAGE, tasks
from scipy.special import xlogy

from domainwise import DomainEnsembleClassifier, DomainEnsembleRegressor
from domainwise.estimators.adaptation.corrections import (
    LABEL_COUNTS,
    SiteLabels,
    SiteQuantiles,
    SourceOutputs,
    Spread,
    domain_scores,
    label_gain,
    learn_prior,
)

HERE = Path(__file__).parent
DRAWS = 20
#: Smallest number of scored rows per site.
MIN_SCORED = 10


def fit_job(job: tuple[str, int, bool, Path, Path]) -> str:
    """Fit an ensemble to one fold, and store its held-out outputs and those for the new domains."""
    name, fold, balanced, data, out = job
    file = out / f"{name}.{fold}.{'balanced' if balanced else 'default'}.npz"
    if file.exists():
        return f"{file.name} already exists"
    task = tasks(name, data)[fold]
    model: Any = DomainEnsembleRegressor(random_state=0)
    if task.n_classes:
        weight = "balanced" if balanced else None
        model = DomainEnsembleClassifier(class_weight=weight, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(task.X[task.learn], task.y[task.learn], sample_domain=task.domain[task.learn])
        kinds = {"plain": None, "context": task.domain_new}
        new_outputs = {
            f"{kind}_new": model.predict_proba(task.X_new, sample_domain=sample_domain)
            if task.n_classes
            else model.predict(task.X_new, sample_domain=sample_domain)[:, None]
            for kind, sample_domain in kinds.items()
        }
    arrays = {"y_new": task.y_new, "domain_new": task.domain_new, "n_classes": task.n_classes}
    if task.n_classes:  # for the alternative that reweights members
        rows = model._features(model._check_rows(task.X_new, reset=False), None)[False]
        members = [model.members_[name].predict(rows) for name in model.weights_]
        arrays["members_new"] = np.stack(members).astype(np.float32)
        arrays["weights"] = np.array(list(model.weights_.values()))
    held_out = model.held_out_
    for kind in ("plain", "context"):
        if (outputs := getattr(held_out, kind)) is not None:
            held_out_arrays = {"y": held_out.y, "domain": held_out.domain, "outputs": outputs}
            arrays |= {f"{kind}_{key}": value for key, value in held_out_arrays.items()}
    np.savez_compressed(file, **arrays, **new_outputs)
    return file.name


def run(names: list[str], data: Path, out: Path, workers: int) -> None:
    """Fit ensembles to all folds of the data sets."""
    out.mkdir(parents=True, exist_ok=True)
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
    jobs = []
    for name in names:
        folds = tasks(name, data)
        weights = (False, True) if folds[0].n_classes else (False,)
        jobs += [(name, fold, w, data, out) for fold in range(len(folds)) for w in weights]
    with get_context("spawn").Pool(workers) as pool:
        for number, message in enumerate(pool.imap_unordered(fit_job, jobs), 1):
            print(f"{number} of {len(jobs)}: {message}", flush=True)


def folds_of(name: str, setting: str, out: Path) -> Iterator[dict[str, Any]]:
    """Stored arrays of the folds of a data set."""
    for file in sorted(out.glob(f"{name}.*.{setting}.npz")):
        with np.load(file) as arrays:
            yield dict(arrays)


def measures(outputs: np.ndarray, y: np.ndarray, n_classes: int) -> np.ndarray:
    """RMSE; or accuracy, balanced accuracy and log loss."""
    if not n_classes:
        return np.array([np.sqrt(np.mean((outputs[:, 0] - y) ** 2))])
    correct = outputs.argmax(axis=1) == y
    recalls = [correct[y == code].mean() for code in np.unique(y)]
    probability = np.maximum(outputs[np.arange(len(y)), y], 1e-15)
    return np.array([correct.mean(), np.mean(recalls), -xlogy(1.0, probability).mean()])


def own_score(outputs: np.ndarray, y: np.ndarray) -> float:
    """The score of an ensemble: balanced accuracy, or negative RMSE."""
    if outputs.shape[1] == 1:
        return -float(measures(outputs, y, 0)[0])
    return float(measures(outputs, y, outputs.shape[1])[1])


class Site:
    """One held-out domain of a fold, with the held-out outputs of the model."""

    def __init__(self, fold: dict[str, Any], code: Any, kind: str, balanced: bool) -> None:
        self.n_classes = int(fold["n_classes"])
        rows = fold["domain_new"] == code
        self.outputs, self.y = fold[f"{kind}_new"][rows].astype(np.float64), fold["y_new"][rows]
        y, domain, outputs = (fold[f"{kind}_{name}"] for name in ("y", "domain", "outputs"))
        self.held_out = SourceOutputs(y, domain, outputs.astype(np.float64), balanced)

    def scores(self, prior: Any, n_labels: int, order: str, rng: Any) -> tuple[Any, Any]:
        """Mean measures without labels and with them, on the same rows."""
        n = len(self.y)
        orders = [np.arange(n)] if order == "first" else [rng.permutation(n) for _ in range(DRAWS)]
        before, after = [], []
        for rows in orders:
            labelled_rows, scored_rows = rows[:n_labels], rows[n_labels:]
            labels = SiteLabels.from_rows(self.outputs[labelled_rows], self.y[labelled_rows])
            corrected_outputs = prior.apply(self.outputs[scored_rows], labels.correction(prior))
            before.append(measures(self.outputs[scored_rows], self.y[scored_rows], self.n_classes))
            after.append(measures(corrected_outputs, self.y[scored_rows], self.n_classes))
        return np.mean(before, axis=0), np.mean(after, axis=0)

    def coverage(self, prior: Any, n_labels: int, rng: Any) -> tuple[float, float, float, float]:
        """Coverage and size of 90 % sets or intervals, without labels and with them."""
        coverage_and_size: list[float] = []
        rows = rng.permutation(len(self.y))
        for k in (0, n_labels):
            labelled_rows, scored_rows = rows[:k], rows[n_labels:]
            labels = SiteLabels.from_rows(self.outputs[labelled_rows], self.y[labelled_rows])
            quantiles = SiteQuantiles.from_labels(self.held_out, prior, labels)
            corrected_outputs = prior.apply(self.outputs[scored_rows], labels.correction(prior))
            if self.n_classes:
                sets = quantiles.sets(1.0 - corrected_outputs, 0.9)
                coverage_and_size += [
                    sets[np.arange(len(scored_rows)), self.y[scored_rows]].mean(),
                    sets.sum(1).mean(),
                ]
            else:
                ends = quantiles.intervals(corrected_outputs[:, 0], 0.9)
                inside = (ends[:, 0] <= self.y[scored_rows]) & (self.y[scored_rows] <= ends[:, 1])
                coverage_and_size += [inside.mean(), np.median(ends[:, 1] - ends[:, 0]) / 2]
        return tuple(coverage_and_size)  # type: ignore[return-value]


def study(name: str, setting: str, kind: str, out: Path) -> dict[str, Any]:
    """All numbers that are reported for a data set."""
    balanced = setting == "balanced"
    scores: dict[Any, list[Any]] = defaultdict(list)
    coverage, gains, n_sources = [], [], []
    for number, fold in enumerate(folds_of(name, setting, out)):
        rng = np.random.default_rng(number)
        if f"{kind}_y" not in fold:
            kind = "plain"
        codes = np.unique(fold["domain_new"])
        site = Site(fold, codes[0], kind, balanced)
        classes = bool(site.n_classes)
        prior = learn_prior(site.held_out)
        n_domains = int(site.held_out.domain_codes.max()) + 1
        table, _ = label_gain(
            site.held_out,
            domain_scores(site.held_out, own_score, n_domains),
            own_score,
        )
        gains.append(table)
        n_sources.append(len(np.unique(site.held_out.domain_codes)))
        for code in codes:
            site = Site(fold, code, kind, balanced)
            for k in LABEL_COUNTS[1:]:
                if len(site.y) < k + MIN_SCORED:
                    continue
                for order in ("random", "first"):
                    scores[k, order].append(site.scores(prior, k, order, rng))
            if len(site.y) >= 20 + MIN_SCORED:
                coverage.append(site.coverage(prior, 20, rng))
    return {
        "classes": classes,
        "scores": {key: np.array(value) for key, value in scores.items()},
        "coverage": np.array(coverage),
        "gains": gains,
        "n_sources": min(n_sources),
    }


def change(pairs: np.ndarray, column: int) -> tuple[float, float, float]:
    """Mean without labels, mean difference with them, and its standard error over sites."""
    before, after = pairs[:, 0, column], pairs[:, 1, column]
    difference = after - before
    error = difference.std(ddof=1) / np.sqrt(len(difference)) if len(difference) > 1 else np.nan
    return float(before.mean()), float(difference.mean()), float(error)


def reweighted_outputs(fold: dict[str, Any], labels: Any, rows: Any, strength: float) -> np.ndarray:
    """Outputs for rows, with members weighted by the likelihood of the labels."""
    members, weights = fold["members_new"][:, labels], fold["weights"]
    probability = np.maximum(members[:, np.arange(len(labels)), fold["y_new"][labels]], 0.01)
    logs = np.log(np.maximum(weights, 1e-12)) + strength * np.log(probability).sum(axis=1)
    weights = np.exp(logs - logs.max())
    return np.tensordot(weights / weights.sum(), fold["members_new"][:, rows], 1)


def trial(name: str, out: Path) -> dict[str, float]:
    """Gains with ten random labels, of the current method and of alternatives, on one data set."""
    gains: dict[str, float] = {}
    site_pairs: dict[str, list[Any]] = defaultdict(list)
    for number, fold in enumerate(folds_of(name, "default", out)):
        rng = np.random.default_rng(number)
        codes = np.unique(fold["domain_new"])
        first_site = Site(fold, codes[0], "plain", False)
        prior = learn_prior(first_site.held_out)
        full_weight = Spread(0.0, 1.0)
        variants: dict[str, Any] = {"current method": prior}
        if first_site.n_classes:
            variants |= {f"scale {scale}": replace(prior, scale=scale) for scale in (0.25, 1.0)}
        else:
            variants |= {"level only": replace(prior, slope=0.0)}
        variants["all labels with full weight"] = replace(prior, spread=full_weight)
        for code in codes:
            site = Site(fold, code, "plain", False)
            site_rows = np.flatnonzero(fold["domain_new"] == code)
            if len(site_rows) < 10 + MIN_SCORED:
                continue
            for variant, variant_prior in variants.items():
                site_pairs[variant].append(site.scores(variant_prior, 10, "random", rng))
            if first_site.n_classes and "members_new" in fold:
                for strength in (0.1, 0.3, 1.0):
                    pairs = []
                    for _ in range(DRAWS):
                        order = rng.permutation(site_rows)
                        rows, y = order[10:], fold["y_new"][order[10:]]
                        mixed_outputs = reweighted_outputs(fold, order[:10], rows, strength)
                        pairs.append(
                            [
                                measures(o, y, first_site.n_classes)
                                for o in (fold["plain_new"][rows].astype(float), mixed_outputs)
                            ]
                        )
                    key = f"members reweighted, strength {strength}"
                    site_pairs[key].append(np.mean(pairs, axis=0))
    for variant, pairs in site_pairs.items():
        before, after = np.mean(pairs, axis=0)
        if first_site.n_classes:
            gains[f"classification: {variant}: accuracy"] = 100 * (after[0] - before[0])
            gains[f"classification: {variant}: log loss"] = 100 * (after[2] / before[2] - 1)
        else:
            gains[f"regression: {variant}: RMSE"] = 100 * (after[0] / before[0] - 1)
    return gains


def trials(names: list[str], studies: dict[Any, dict[str, Any]]) -> list[list[str]]:
    """Mean gains over data sets."""
    gains: dict[str, list[float]] = defaultdict(list)
    for name in names:
        for key, value in studies.get((name, "default", "trials"), {}).items():
            gains[key].append(value)
    return [[*key.split(": "), f"{np.mean(value):+.2f}"] for key, value in gains.items()]


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """A Markdown table."""
    line = lambda cells: f"| {' | '.join(cells)} |"  # noqa: E731
    return [line(header), line(["---"] * len(header)), *map(line, rows), ""]


def cell(pairs: np.ndarray, column: int, *, percent: bool) -> str:
    """A change with its standard error, in percentage points or percent."""
    before, difference, error = change(pairs, column)
    scale = 100.0 / before if percent else 100.0
    return f"{scale * difference:+.1f} ± {abs(scale) * error:.1f}"


def study_job(job: tuple[str, str, str, Path]) -> tuple[tuple[str, str, str], dict[str, Any]]:
    """A study with its key; the kind ``trials`` compares alternatives."""
    name, _, kind, out = job
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return job[:3], trial(name, out) if kind == "trials" else study(*job)


def score_tables(
    name_sets: dict[str, list[str]], kind: str, studies: dict[Any, dict[str, Any]]
) -> list[str]:
    """All tables for one kind of output."""
    lines: list[str] = []
    numbers, classes, coverage_rows, gain_table = [], defaultdict(list), [], []
    for setting in ("default", "balanced"):
        for stage, names in name_sets.items():
            for name in names:
                if (name, setting, kind) not in studies:
                    continue
                results = studies[name, setting, kind]
                pairs = results["scores"]
                title = name if stage == "development" else f"{name} *"
                if results["classes"]:
                    row = [title]
                    for order in ("random", "first"):
                        pairs_of_ten = pairs[10, order]
                        row += [
                            cell(pairs_of_ten, 0, percent=False),
                            cell(pairs_of_ten, 1, percent=False),
                        ]
                        row += [cell(pairs_of_ten, 2, percent=True)]
                    classes[setting].append(row)
                else:
                    row = [title, f"{change(pairs[10, 'random'], 0)[0]:.3f}"]
                    row += [
                        cell(pairs[key], 0, percent=True) if key in pairs else "–"
                        for key in [(k, "random") for k in LABEL_COUNTS[1:]] + [(10, "first")]
                    ]
                    numbers.append(row)
                if len(results["coverage"]):
                    before, _, after, _ = results["coverage"].mean(axis=0)
                    median = np.median(results["coverage"][:, [1, 3]], axis=0)
                    coverage_rows.append(
                        [
                            f"{title}, {setting}" if results["classes"] else title,
                            str(results["n_sources"]),
                            f"{before:.3f}",
                            f"{after:.3f}",
                            f"{median[0]:.3g}",
                            f"{median[1]:.3g}",
                        ]
                    )
                gain_table += gain_rows(title, setting, results)
    lines += ["### Regression: change in RMSE, in percent", ""]
    header = ["", "RMSE", *(f"{k} labels" for k in LABEL_COUNTS[1:]), "first 10 rows"]
    lines += table(header, numbers)
    for setting, rows in classes.items():
        lines += [f"### Classification with {setting} class weights: change with ten labels", ""]
        header = ["", "accuracy", "balanced accuracy", "log loss, %"]
        lines += table([*header, *(f"first 10: {h}" for h in header[1:])], rows)
    lines += [
        "### Prediction sets and intervals with a nominal coverage of 90 %, twenty labels",
        "",
    ]
    header = ["", "source domains", "coverage without labels", "with labels"]
    header += ["median size without labels", "with labels"]
    lines += table(header, coverage_rows)
    lines += ["### Predicted (`label_gain_`) and observed scores", ""]
    header = ["", "labels", "predicted", "interval", "observed", "inside"]
    inside = [row[-1] == "yes" for row in gain_table]
    lines += table(header, gain_table)
    lines += [f"Observed scores inside the predicted interval: {sum(inside)} of {len(inside)}.", ""]
    return lines


def gain_rows(title: str, setting: str, results: dict[str, Any]) -> list[list[str]]:
    """Predicted and observed scores with labels, averaged over folds and domains."""
    rows = []
    for j, k in enumerate(LABEL_COUNTS):
        if k not in (5, 10, 20) or (k, "random") not in results["scores"]:
            continue
        finite_gains = [table[j] for table in results["gains"] if np.isfinite(table[j, 2])]
        if not finite_gains:
            continue
        _, score, low, high = np.mean(finite_gains, axis=0)
        pairs = results["scores"][k, "random"]
        observed_score = pairs[:, 1, 1].mean() if results["classes"] else -pairs[:, 1, 0].mean()
        name = f"{title}, {setting}" if results["classes"] else title
        is_inside = "yes" if low <= observed_score <= high else "no"
        rows.append(
            [
                name,
                str(k),
                f"{score:.3f}",
                f"{low:.3f} to {high:.3f}",
                f"{observed_score:.3f}",
                is_inside,
            ]
        )
    return rows


def answer(lines: list[str]) -> str:
    """The first sentence: what ten labels change if rows are predicted one by one."""

    def reductions(heading: str, name: str) -> list[float]:
        start = next(i for i, line in enumerate(lines) if line.startswith(f"### {heading}")) + 2
        position = [cell.strip() for cell in lines[start].split("|")].index(name)
        rows = lines[start + 2 : lines.index("", start)]
        return [-float(row.split("|")[position].split("±")[0]) for row in rows]

    rmse = reductions("Regression: change in RMSE", "10 labels")
    losses = reductions("Classification with default class weights", "log loss, %")
    return (
        f"Ten labels reduce the ensemble's RMSE by {min(rmse):.0f} to {max(rmse):.0f} % (median "
        f"{np.median(rmse):.0f} %) on {len(rmse)} regression data sets, and its log loss "
        f"by at most {max(losses):.0f} % (median {np.median(losses):.0f} %) on {len(losses)} "
        "classification data sets."
    )


def report(out: Path, workers: int) -> None:
    """Write ADAPT.md."""
    names: dict[str, list[str]] = defaultdict(list)
    for name, stage in STAGE.items():
        names[stage].append(name)
    jobs = [
        (name, setting, kind, out)
        for kind in ("plain", "context", "trials")
        for setting in ("default", "balanced")
        for name in STAGE
        if any(out.glob(f"{name}.*.{setting}.npz"))
        and (kind != "trials" or (setting == "default" and STAGE[name] == "development"))
    ]
    with get_context("spawn").Pool(workers) as pool:
        studies = dict(pool.imap_unordered(study_job, jobs))
    tables = {kind: score_tables(names, kind, studies) for kind in ("plain", "context")}
    lines = [
        "# How much do a few labels from a new site improve scores?",
        "",
        answer(tables["plain"]),
        "",
        "Written by `python benchmarks/adapt.py report`, from ensembles fitted to 600 rows. A "
        "star marks confirmation sets. Changes are in percentage points, or in percent where "
        "stated, with the standard error of paired differences over sites. Labels are drawn at "
        "random, unless the column says that they come from the first rows of the table.",
        "",
    ]
    for kind in ("plain", "context"):
        heading = "Rows one by one" if kind == "plain" else "Rows with context"
        lines += [f"## {heading}", "", *tables[kind]]
    lines += [
        "## Alternatives that were tried on development sets",
        "",
        "The table shows the mean change over data sets with ten random labels, in percent of "
        "RMSE and log loss, and in percentage points of accuracy. The current method corrects the "
        "level and the slope in regression, and a bias per class in classification. Labels of "
        "rows with similar outputs have less weight. Weighting members by the likelihood of the "
        "labels was rejected: it improves scores less than the bias does, and it needs the "
        "outputs of every member.",
        "",
        *table(["target", "variant", "measure", "change"], trials(names["development"], studies)),
    ]
    (HERE / "ADAPT.md").write_text("\n".join(lines), encoding="utf-8")


def main() -> None:
    """Run a stage."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=("run", "report"))
    parser.add_argument("--sets", nargs="+", default=list(STAGE), choices=list(STAGE))
    parser.add_argument("--data", type=Path, default=FOLDER)
    parser.add_argument("--out", type=Path, default=Path("domainwise-results/adapt"))
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    if options.stage == "run":
        run(options.sets, options.data, options.out, options.workers)
    else:
        report(options.out, options.workers)


if __name__ == "__main__":
    main()
