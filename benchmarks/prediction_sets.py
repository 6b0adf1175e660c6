"""Prediction sets, calibration and intervals of scores on new domains: writes PREDICTION_SETS.md.

``python benchmarks/prediction_sets.py`` takes a few minutes; ``--quick`` uses few rows.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from data_sets import DATA_SETS
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import Bunch

from domainwise import InvariantRidgeClassifierCV
from domainwise.base.messages import listed
from domainwise.held_out.calibration.quantiles import reported_coverage
from domainwise.held_out.folds import draw_rows
from domainwise.held_out.scoring.statistics import expected_score
from domainwise.selection import DomainConformal, adapt_class_shares

Array = np.ndarray[Any, Any]
HERE = Path(__file__).resolve().parent
MAX_DOMAINS, ROWS = 11, 500
#: Numbers of source domains for which approximate sets are measured, number of draws of source
#: domains, of new domains for each draw, and of rows of each data set.
N_SOURCES, DRAWS, N_NEW, DRAWN_ROWS = (3, 4, 6, 8, 12, 20), 3, 5, 1000


def made(rng: np.random.Generator, n_domains: int, kind: str) -> tuple[Array, Array, Array]:
    """Domains of unequal size: similar, shifted, or shifted with unequal noise."""
    sizes = rng.integers(5, 60, size=n_domains)
    domain = np.repeat(np.arange(n_domains), sizes)
    is_shifted, has_unequal_noise = kind != "similar", kind == "shifted, unequal noise"
    X = rng.normal(size=(len(domain), 3)) + is_shifted * rng.normal(size=(n_domains, 3))[domain]
    noise = np.exp(has_unequal_noise * rng.normal(size=n_domains))[domain]
    noise = noise * (0.5 + np.abs(X[:, 1]) if has_unequal_noise else 1.0)
    y = X[:, 0] + is_shifted * rng.normal(size=n_domains)[domain]
    return X, y + noise * rng.normal(size=len(domain)), domain


def simulated(n_runs: int) -> list[str]:
    """Coverage of random new domains, compared with the nominal coverage."""
    lines = [
        "| domains | calibration | calibration domains | nominal coverage | coverage | standard "
        "error | bounds | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind in ("similar", "shifted", "shifted, unequal noise"):
        for n, coverage in ((9, 0.9), (9, 0.8), (24, 0.9)):
            for calibration in ("split", "cv"):
                rng = np.random.default_rng(0)
                n_domains = 2 * n if calibration == "split" else n
                coverages = []
                for _ in range(n_runs if calibration == "split" else n_runs // 4):
                    X, y, domain = made(rng, n_domains + 1, kind)
                    new = domain == n_domains
                    model = DomainConformal(LinearRegression(), calibration=calibration)
                    model.fit(X[~new], y[~new], sample_domain=domain[~new])
                    ends = model.predict_interval(X[new], coverage=coverage)
                    coverages.append(np.mean((ends[:, 0] <= y[new]) & (y[new] <= ends[:, 1])))
                mean, error = np.mean(coverages), np.std(coverages) / np.sqrt(len(coverages))
                low, high = coverage - 2 * error, coverage + 1 / (n + 1) + 2 * error
                inside = "inside" if low <= mean <= high else "OUTSIDE"
                bounds = f"{low:.3f} to {high:.3f}"
                verdict = f"{bounds} | {inside}" if calibration == "split" else "no guarantee | "
                lines.append(
                    f"| {kind} | {calibration} | {n} | {coverage} | {mean:.3f} | {error:.3f} | "
                    f"{verdict} |"
                )
    return lines


def loaded(
    name: str, max_domains: int = MAX_DOMAINS, n_rows: int = ROWS
) -> tuple[Array, Array, Array, bool]:
    """Rows of some domains of a development set."""
    if name == "impact_trials":
        folder = Path(os.environ.get("DOMAINWISE_DATA", "../shared/data"))
        frame = pd.read_csv(folder / "impact_trials.csv.gz")
        X, y = pd.get_dummies(frame.drop(columns=["domain", "dead"])), frame["dead"].to_numpy()
        bunch = Bunch(data=X, target=y, sample_domain=frame["domain"])
    else:
        bunch = DATA_SETS["development"][name]()
    y = np.asarray(bunch.target)
    classes = y.dtype.kind in "iubUO"
    domain = np.unique(bunch.sample_domain, return_inverse=True)[1]
    chosen_domains = np.random.default_rng(0).permutation(domain.max() + 1)[:max_domains]
    rows = np.flatnonzero(np.isin(domain, chosen_domains))
    rows = rows[draw_rows(domain[rows], n_rows, 0)]
    y = np.unique(y[rows], return_inverse=True)[1] if classes else y[rows].astype(float)
    X = np.asarray(bunch.data)[rows].astype(float)
    return X, y, np.unique(domain[rows], return_inverse=True)[1], classes


def models(classes: bool) -> dict[str, Any]:
    """A standard model and, for classification, an invariant model."""
    start = (SimpleImputer(), StandardScaler())
    if not classes:
        return {"ridge": make_pipeline(*start, RidgeCV(np.logspace(-2, 3, 8)))}
    ridge = InvariantRidgeClassifierCV(
        kernels=["rbf"], domain_weights=[0, 1], conditionals=[False], n_landmarks=100
    )
    return {
        "logistic": make_pipeline(*start, LogisticRegression(max_iter=1000)),
        "invariant ridge": make_pipeline(*start, ridge),
    }


def calibration_error(p: Array, y: Array, n_bins: int = 10) -> float:
    """Mean absolute difference between confidence and accuracy over bins of confidence."""
    confidence, correct = p.max(axis=1), p.argmax(axis=1) == y
    bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    return float(
        sum(
            abs((correct - confidence)[bins == b].mean()) * (bins == b).mean()
            for b in np.unique(bins)
        )
    )


def observed(names: list[str]) -> tuple[list[str], list[str]]:
    """Coverage, log loss and calibration error on held-out domains of real sets."""
    sets = [
        "| set | model | nominal coverage | coverage | by domain | size, or width / standard "
        "deviation |",
        "|---|---|---|---|---|---|",
    ]
    probabilities = [
        "| set | model | log loss | with EM | calibration error | with EM | accuracy | with EM |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in names:
        X, y, domain, classes = loaded(name)
        largest_coverage = reported_coverage(domain.max()) or 0.5
        nominal = sorted(
            {0.5, largest_coverage} if largest_coverage < 0.9 else {0.8, largest_coverage}
        )
        for label, model in models(classes).items():
            coverages: dict[float, list[float]] = {c: [] for c in nominal}
            sizes: dict[float, list[float]] = {c: [] for c in nominal}
            losses = []
            for code in np.unique(domain):
                new = domain == code
                conformal = DomainConformal(clone(model))
                conformal.fit(X[~new], y[~new], sample_domain=domain[~new])
                shape = (int(new.sum()), int(y.max()) + 1 if classes else 0)
                for c in nominal:
                    if classes:
                        in_set = np.zeros(shape, dtype=bool)
                        in_set[:, conformal.classes_] = conformal.predict_set(X[new], coverage=c)
                        coverages[c].append(in_set[np.arange(len(in_set)), y[new]].mean())
                        sizes[c].append(in_set.sum(axis=1).mean())
                    else:
                        ends = conformal.predict_interval(X[new], coverage=c)
                        inside = (ends[:, 0] <= y[new]) & (y[new] <= ends[:, 1])
                        coverages[c].append(inside.mean())
                        sizes[c].append(np.ptp(ends, axis=1).mean() / y.std())
                if not classes:
                    continue
                p = np.full(shape, 1e-6)
                p[:, conformal.classes_] = np.maximum(conformal.predict_proba(X[new]), 1e-6)
                shares = np.maximum(np.bincount(y[~new], minlength=p.shape[1]), 0.5)
                row = []
                for q in (p, adapt_class_shares(p, shares)):
                    loss = -np.log(q[np.arange(len(q)), y[new]]).mean()
                    accuracy = (q.argmax(axis=1) == y[new]).mean()
                    row.append((loss, calibration_error(q, y[new]), accuracy))
                losses.append(row)
            for c in nominal:
                by_domain = " ".join(f"{value:.2f}" for value in sorted(coverages[c]))
                sets.append(
                    f"| {name} | {label} | {c} | {np.mean(coverages[c]):.3f} | {by_domain} | "
                    f"{np.mean(sizes[c]):.2f} |"
                )
            if losses:
                (loss, error, accuracy), (em_loss, em_error, em_right) = np.mean(losses, axis=0)
                probabilities.append(
                    f"| {name} | {label} | {loss:.3f} | {em_loss:.3f} | {error:.3f} | "
                    f"{em_error:.3f} | {accuracy:.3f} | {em_right:.3f} |"
                )
            print(sets[-1], flush=True)
    return sets, probabilities


def approximate_sets(names: list[str], n_draws: int) -> tuple[list[str], str]:
    """Coverage and size of approximate sets and intervals at 90 %, by number of source domains.

    Also return a sentence that compares them with the threshold of the guarantee.
    """
    titles = " | ".join(map(str, N_SOURCES))
    lines = [f"| set | model | log loss / constant's | {titles} |", "|---" * 9 + "|"]
    means: dict[int, list[Array]] = {n: [] for n in N_SOURCES}
    useful_sizes: dict[int, list[float]] = {n: [] for n in N_SOURCES}
    for name in names:
        X, y, domain, classes = loaded(name, 10**6, DRAWN_ROWS)
        n_classes, n_domains = int(y.max()) + 1 if classes else 0, int(domain.max()) + 1
        boosting = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
        candidates = {
            **models(classes),
            "boosting": boosting(max_iter=40, max_leaf_nodes=8, random_state=0),
        }
        candidates.pop("invariant ridge", None)
        for label, model in candidates.items():
            runs: dict[int, list[Array]] = {n: [] for n in N_SOURCES}
            for n_sources in (n for n in N_SOURCES if n < n_domains):
                rng = np.random.default_rng(n_sources)
                for _ in range(n_draws):
                    order = rng.permutation(n_domains)
                    learn = np.isin(domain, order[:n_sources])
                    if classes and len(np.unique(y[learn])) < 2:
                        continue
                    conformal = DomainConformal(clone(model))
                    conformal.fit(X[learn], y[learn], sample_domain=domain[learn])
                    for code in order[n_sources:][:N_NEW]:
                        new = domain == code
                        run = scored(conformal, X[new], y[new], y[learn], n_classes)
                        runs[n_sources].append(run)
            all_runs = [run for some in runs.values() for run in some]
            ratio = float(np.mean([run[2] for run in all_runs]))
            cells = []
            for n_sources, some in runs.items():
                if not some:
                    cells.append("–")
                    continue
                mean = np.mean(some, axis=0)
                means[n_sources].append(mean)
                if ratio <= 0.9:
                    useful_sizes[n_sources].append(mean[1])
                cells.append(f"{mean[0]:.3f} ({mean[1]:.2f})")
            ratio_text = f"{ratio:.2f}" if classes else "–"
            lines.append(f"| {name} | {label} | {ratio_text} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    present = {n: np.mean(runs, axis=0) for n, runs in means.items() if runs}
    lowest = {n: np.min(means[n], axis=0)[0] for n in present}
    sizes = {n: np.mean(useful_sizes[n]) for n in present if useful_sizes[n]}
    rows = {
        "mean coverage": [f"{present[n][0]:.3f}" if n in present else "–" for n in N_SOURCES],
        "lowest coverage": [f"{lowest[n]:.3f}" if n in lowest else "–" for n in N_SOURCES],
        "mean size of sets if the ratio is at most 0.9": [
            f"{sizes[n]:.2f}" if n in sizes else "–" for n in N_SOURCES
        ],
    }
    lines += [f"| **{name}** | | | {' | '.join(cells)} |" for name, cells in rows.items()]
    texts = []
    for n_sources in (12, 20):
        if n_sources in present:
            coverage, guaranteed = present[n_sources][[0, 3]]
            texts.append(f"{guaranteed:.3f} instead of {coverage:.3f} with {n_sources} domains")
    return lines, listed(texts)


def scored(
    conformal: DomainConformal, X: Array, y: Array, y_learn: Array, n_classes: int
) -> tuple[float, float, float, float]:
    """Coverage, relative size, log loss relative to that of the class frequencies, and coverage
    with the threshold of the guarantee.
    """
    quantiles = conformal._quantiles["plain"]
    guaranteed = replace(quantiles, approximate=None).threshold(0.9)
    if not n_classes:
        errors = np.abs(conformal.predict(X) - y)
        width = np.ptp(conformal.predict_interval(X[:1], coverage=0.9)) / y_learn.std()
        is_inside = [np.mean(errors <= t) for t in (quantiles.threshold(0.9), guaranteed)]
        return float(is_inside[0]), float(width), np.nan, float(is_inside[1])
    in_set = np.zeros((len(y), n_classes), dtype=bool)
    in_set[:, conformal.classes_] = conformal.predict_set(X, coverage=0.9)
    p = np.zeros(in_set.shape)
    p[:, conformal.classes_] = conformal.predict_proba(X)
    shares = np.maximum(np.bincount(y_learn, minlength=n_classes), 0.5) / len(y_learn)
    rows = np.arange(len(y))
    ratio = np.log(np.maximum(p[rows, y], 1e-6)).mean() / np.log(shares[y]).mean()
    is_covered = in_set[rows, y], 1 - p[rows, y] <= guaranteed
    return float(is_covered[0].mean()), float(in_set.mean()), float(ratio), is_covered[1].mean()


def intervals(n_runs: int) -> list[str]:
    """How often the interval of an expected score contains the mean over all domains."""
    lines = ["| source domains | share of 95 % intervals that contain the mean |", "|---|---|"]
    rng = np.random.default_rng(0)
    for n in (4, 6, 9, 15, 30):
        hits = 0
        for _ in range(n_runs):
            _, low, high = expected_score(rng.beta(8, 3, size=n), 0)
            hits += low <= 8 / 11 <= high
        lines.append(f"| {n} | {hits / n_runs:.3f} |")
    return lines


def answer(simulated_lines: list[str], approximate_lines: list[str]) -> str:
    """The first sentence of the report."""
    bounded = [line for line in simulated_lines if "| split |" in line]
    n_inside = sum("| inside |" in line for line in bounded)
    (mean_line,) = [line for line in approximate_lines if "mean coverage" in line]
    coverages = [cell.strip() for cell in mean_line.split("|")[4:-1]]
    known = {n: float(c) for n, c in zip(N_SOURCES, coverages, strict=True) if c != "–"}
    percentages = [f"{100 * coverage:.0f}" for coverage in known.values()]
    numbers, shares = listed([*map(str, known)], len(known)), listed(percentages, len(known))
    return (
        f"With {numbers} source domains, approximate sets and intervals at 90 % contain the target "
        f"of {shares} % of the rows of new domains, on average over the development sets; in "
        f"simulations, the guaranteed coverage is inside its bounds in {n_inside} of "
        f"{len(bounded)} settings."
    )


def main() -> None:
    """Measure everything and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="use few runs and write no report")
    quick = parser.parse_args().quick
    started = time.process_time()
    warnings.simplefilter("ignore")
    simulated_lines = simulated(8 if quick else 400)
    names = ["synthetic"] if quick else list(DATA_SETS["development"])
    sets, probabilities = observed(names)
    few_names = names if quick else [*names, "impact_trials"]
    approximate_lines, compared = approximate_sets(few_names, 1 if quick else DRAWS)
    interval_lines = intervals(20 if quick else 500)
    seconds = time.process_time() - started
    text = f"""# How often do prediction sets and intervals contain the target?

{answer(simulated_lines, approximate_lines)}

Written by `benchmarks/prediction_sets.py` in {seconds:.0f} s on one core.

## Simulated domains

The model is linear, and each run has one new domain from the same distribution. The coverage of
"split" is *guaranteed*: its average over domains must not be below the nominal coverage by more
than two standard errors, and not above it by more than 1/(K + 1) plus two standard errors. The
coverage of "cv" is *approximate*: it has no bounds, and a quarter as many runs.

{chr(10).join(simulated_lines)}

## Approximate sets at 90 %, by number of source domains

Models are fitted to 3 to 20 domains of each development set ({DRAWN_ROWS:,} rows in total), drawn
{DRAWS} times, and predict up to {N_NEW} other domains; `calibration="cv"`. The cells are the
coverage and, in parentheses, the size: the share of all classes that a set contains, or the width
of an interval divided by the standard deviation of the target. Parkinson's has 42 persons, whose
levels differ by more than the model explains, so its coverage varies with the draw.

{chr(10).join(approximate_lines)}

The threshold for which coverage could be guaranteed (with domains that are used only for
calibration), which `calibration="split"` uses, covers {compared}.
With few domains, it is close to the largest score.

## Each held-out domain

Up to {MAX_DOMAINS} domains and {ROWS} rows of each data set are used. Each domain is held out in
turn, and `calibration="cv"` uses only the other domains. The nominal coverages are
the largest of 0.5, 0.8 and 0.9 that the number of domains allows, and the next smaller one.
Coverage is an average over domains; coverages of individual domains, shown in sorted order, differ
widely.

{chr(10).join(sets)}

## Probabilities on held-out domains

The table shows means over the same held-out domains. Calibration errors are computed in ten bins;
they are larger if there are few rows. "With EM" means that class shares of the
new domain are estimated without labels (`adapt_class_shares`).

{chr(10).join(probabilities)}

## Intervals for expected scores

Intervals are computed by drawing domains with replacement, and widened according to Student's t
distribution; they are *approximate*. In this simulation, the scores of domains are drawn from a
beta distribution.

{chr(10).join(interval_lines)}
"""
    if quick:
        print(text)
    else:
        (HERE / "PREDICTION_SETS.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
