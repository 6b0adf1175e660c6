"""Coverage of the range for one new domain: writes NEXT_SITE.md.

``python benchmarks/next_site.py run ROWS.jsonl [--jobs 8] [--folds 10] [--ensemble]`` takes an hour
on one core, and another hour with the ensemble; an interrupted run skips finished folds.
``python benchmarks/next_site.py report ROWS.jsonl …`` writes the part on real data;
``python benchmarks/next_site.py simulate [--runs 400]`` (five minutes) the part on simulated sites;
and ``python benchmarks/next_site.py evaluate [--runs 200]`` (eight minutes) that on what `evaluate`
says.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from data_sets import DATA_SETS, STAGE, prepare
from joblib import Parallel, delayed
from measuring import replace_part
from scipy.special import expit, logit
from scipy.stats import binom, norm
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import balanced_accuracy_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import Bunch

from domainwise import DomainEnsembleClassifier, DomainEnsembleRegressor, SiteAdapter, evaluate
from domainwise.evaluation.evaluation import Evaluation
from domainwise.evaluation.results import MethodResult
from domainwise.held_out.folds import draw_rows
from domainwise.held_out.scoring.measures import choose_measure
from domainwise.held_out.scoring.pooling import auc_error
from domainwise.metrics import pool_scores
from domainwise.selection import LeaveDomainsOut

REPORT = Path(__file__).resolve().with_name("NEXT_SITE.md")
#: Training rows, scored rows per domain, and groups of held-out domains.
TRAINING_ROWS, SCORED_ROWS, FOLDS = 1500, 200, 20
ENSEMBLE_ROWS, ENSEMBLE_FOLDS = 600, 5
#: Simulated sites: numbers of sites, standard deviations of the logit of the true AUC between them,
#: rows and share of events at a site, and the AUC of the typical site.
N_SITES, TAUS, N_ROWS, EVENTS, AUC = (5, 12, 48), (0.0, 0.1, 0.2, 0.5), 300, 0.25, 0.8


def models(classes: bool) -> dict[str, Any]:
    """Three different fast models: linear, trees, boosted trees."""
    if not classes:
        trees = ExtraTreesRegressor(60, min_samples_leaf=3, random_state=0)
        boosting = HistGradientBoostingRegressor(max_iter=50, random_state=0)
        return {"linear": Ridge(10.0), "trees": trees, "boosting": boosting}
    weight: dict[str, Any] = {"class_weight": "balanced", "random_state": 0}
    return {
        "linear": LogisticRegression(C=0.1, max_iter=300, **weight),
        "trees": ExtraTreesClassifier(60, min_samples_leaf=3, **weight),
        "boosting": HistGradientBoostingClassifier(max_iter=50, **weight),
    }


def ensembles(classes: bool) -> dict[str, Any]:
    """The ensemble with the settings of `fit`."""
    if classes:
        return {"ensemble": DomainEnsembleClassifier(class_weight="balanced", random_state=0)}
    return {"ensemble": DomainEnsembleRegressor(random_state=0)}


def loaded(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """Rows, targets, domain codes, and whether the targets are class codes."""
    with np.load(folder / f"{name}.npz") as file:
        X, y, domain, n_classes = (file[key] for key in ("X", "y", "domain", "n_classes"))
    return X, y, domain, bool(n_classes)


def fold(
    name: str,
    number: int,
    folder: Path,
    make: Callable[[bool], dict[str, Any]],
    rows: int,
    n_folds: int,
) -> list[dict[str, Any]]:
    """Ranges of models fitted to the source domains, and their scores on the new domains."""
    warnings.simplefilter("ignore")
    X, y, domain, classes = loaded(name, folder)
    splitter = LeaveDomainsOut(max_splits=n_folds, random_state=0)
    train, test = list(splitter.split(X, y, domain))[number]
    train = train[draw_rows(domain[train], rows, number)]
    lines = []
    for key, model in make(classes).items():
        preparation = make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler())
        Z, train_domain = preparation.fit_transform(X[train]), domain[train]
        adapter = model if key == "ensemble" else SiteAdapter(model)
        adapter.fit(Z, y[train], sample_domain=train_domain)
        sources = dict(
            zip(np.unique(train_domain).tolist(), adapter.domain_scores_.tolist(), strict=True)
        )
        for code in np.unique(domain[test]):
            new_rows = test[domain[test] == code]
            new_rows = new_rows[draw_rows(np.zeros(len(new_rows), int), SCORED_ROWS, number)]
            predicted = adapter.predict(preparation.transform(X[new_rows]))
            if classes and len(np.unique(y[new_rows])) < 2:
                continue  # with one class, any constant would be correct
            score = (
                balanced_accuracy_score(y[new_rows], predicted)
                if classes
                else -float(np.sqrt(np.mean((y[new_rows] - predicted) ** 2)))
            )
            lines.append(
                {"set": name, "fold": number, "model": key, "classes": classes, "new": int(code),
                 "score": float(score), "rows": len(new_rows), "range": adapter.expected_range_,
                 "sources": sources}
            )  # fmt: skip
    return lines


def run(names: list[str], out: Path, n_jobs: int, ensemble: bool, limit: int = FOLDS) -> None:
    """Run the first folds, up to a limit, that are not in the file."""
    finished_folds = {(line["set"], line["fold"], line["model"]) for line in read([out])}
    make_models, rows = (ensembles, ENSEMBLE_ROWS) if ensemble else (models, TRAINING_ROWS)
    max_folds, last_model = (ENSEMBLE_FOLDS, "ensemble") if ensemble else (FOLDS, "boosting")
    points, folder = [], out.parent / "arrays"
    prepare([name for name in names if not (folder / f"{name}.npz").exists()], folder)
    for name in names:
        n_folds = min(max_folds, len(np.unique(loaded(name, folder)[2])))
        folds = range(min(n_folds, limit))
        points += [(name, k) for k in folds if (name, k, last_model) not in finished_folds]
    # One fold of every set first, so that an interrupted run has results for all sets.
    points.sort(key=lambda point: point[1])
    jobs = (delayed(fold)(name, k, folder, make_models, rows, max_folds) for name, k in points)
    for lines in Parallel(n_jobs, return_as="generator_unordered", batch_size=1)(jobs):
        with out.open("a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(line)}\n" for line in lines)


def read(paths: list[Path]) -> list[dict[str, Any]]:
    """All lines of the files."""
    texts = [path.read_text("utf-8") for path in paths if path.exists()]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def chosen(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The method that `evaluate` would recommend on the source domains, and its range."""
    points: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    for line in lines:
        points.setdefault((line["set"], line["new"]), {})[line["model"]] = line
    chosen_lines = []
    for by_model in points.values():
        first_line = next(iter(by_model.values()))
        y = np.array([0, 1]) if first_line["classes"] else np.array([0.0, 0.5])
        scoring = "balanced_accuracy" if first_line["classes"] else "rmse"
        results = [
            MethodResult(key, key, "own", "", line["sources"], {}) for key, line in by_model.items()
        ]
        results.sort(key=lambda result: -result.mean)
        measure = choose_measure(scoring, y, first_line["classes"])
        evaluation = Evaluation(results, list(first_line["sources"]), measure, {}, {})
        ends = evaluation.next_site and sorted(measure.sign * end for end in evaluation.next_site)
        chosen_lines.append(
            {**by_model[evaluation.recommended_], "model": "recommended", "range": ends}
        )
    return chosen_lines


def covered(lines: list[dict[str, Any]]) -> np.ndarray:
    """Whether the score on each new domain lies in its range."""
    scores_and_ranges = [(line["score"], *line["range"]) for line in lines if line["range"]]
    return np.array([low - 1e-9 <= score <= high + 1e-9 for score, low, high in scores_and_ranges])


def report(paths: list[Path]) -> str:
    """Write the report of all results."""
    lines = read(paths)
    fast_lines = [line for line in lines if line["model"] != "ensemble"]
    lines += chosen(fast_lines)
    names = [name for name in ("linear", "trees", "boosting", "recommended", "ensemble")
             if any(line["model"] == name for line in lines)]  # fmt: skip
    order = sorted({line["set"] for line in lines}, key=lambda s: (STAGE[s] != "development", s))
    table = [f"| set | domains | {' | '.join(names)} |", f"|---|---|{'---|' * len(names)}"]
    unexpected_counts: list[str] = []
    for name in order:
        cells = []
        for model in names:
            inside = covered([x for x in lines if (x["set"], x["model"]) == (name, model)])
            low, high = binom.interval(0.95, max(len(inside), 1), 0.9)
            unexpected_counts += [f"{model} on {name}"] * (
                len(inside) > 0 and not low <= inside.sum() <= high
            )
            cells.append(f"{inside.sum()} of {len(inside)}" if len(inside) else "no range")
        n = len({x["new"] for x in lines if x["set"] == name})
        table.append(f"| {name} | {n} | {' | '.join(cells)} |")
    totals = []
    for stage in ("development", "confirmation", "all"):
        row = []
        for model in names:
            selected = [x for x in lines if x["model"] == model]
            if stage != "all":
                selected = [x for x in selected if STAGE[x["set"]] == stage]
            inside = covered(selected)
            row.append(f"{inside.mean():.3f} ({len(inside)})" if len(inside) else "–")
        totals.append(f"| **{stage}** | | {' | '.join(row)} |")
    scored_lines = [x for x in lines if x["model"] != "recommended" and x["range"]]
    n_below = sum(x["score"] < x["range"][0] for x in scored_lines)
    n_above = sum(x["score"] > x["range"][1] for x in scored_lines)
    without_range = ", ".join(sorted({x["set"] for x in lines if not x["range"]}))
    no_range = f"No range (fewer than four source domains): {without_range}." * bool(without_range)
    n_folds = 1 + max(x["fold"] for x in lines)
    n_inside = len(scored_lines) - n_below - n_above
    return f"""## Held-out domains of real data

The 90 % range contained {100 * n_inside / len(scored_lines):.0f} % of {len(scored_lines)} scores
of models on new domains; {n_below} scores were worse than the range, and {n_above} were better.

Written by `benchmarks/next_site.py report`. Domains are held out one at a time, or in {FOLDS}
groups if there are more, of which up to {n_folds} were run. `expected_range_` is computed from the
other domains only (each held out in turn), for a probability of 90 %. A new domain is covered if
its measured score lies in the range. Scores are balanced accuracy (recall averaged over the classes
that occur), or RMSE. Models are trained on up to {TRAINING_ROWS} rows and scored on up to
{SCORED_ROWS} rows of each new domain; the ensemble, if it was run, on {ENSEMBLE_ROWS} rows and in
{ENSEMBLE_FOLDS} groups. New domains with a single class are not scored.
"recommended" is the model that `evaluate` would recommend among the three fast models. For its
range, the model is chosen again for each domain, based on the other domains.

Number of new domains whose score lies inside the range:

{chr(10).join(table + totals)}

These counts differ significantly from 90 % (below the 2.5 % or above the 97.5 % quantile of the
binomial distribution): {", ".join(unexpected_counts) or "none"}. The data sets with the most scores
outside the range have domains of very different size (communities: 20 to 200 rows) or scores close
to 1 (gvhd), for which Student's t distribution is a poorer approximation.
{no_range}
"""


def site_score(true_auc: float, rng: np.random.Generator) -> tuple[float, float]:
    """AUC of a site with normal scores, and its standard error (DeLong)."""
    is_event = np.arange(N_ROWS) < EVENTS * N_ROWS
    scores = rng.normal(size=N_ROWS) + np.sqrt(2) * norm.ppf(true_auc) * is_event
    return auc_error(is_event, scores)


def simulate(n_sites: int, tau: float, runs: int, rng: np.random.Generator) -> list[str]:
    """A row of the table: shares of runs, and coverages of the true score at a new site."""
    differ, coverages = [], []
    for _ in range(runs):
        true_values = logit(AUC) + tau * rng.normal(size=n_sites)
        aucs, errors = np.transpose([site_score(a, rng) for a in expit(true_values)])
        pooled = pool_scores(aucs, errors, scale="logit")
        differ.append(pooled.differ)
        new_error = float(np.median(errors))
        new_true = expit(logit(AUC) + tau * rng.normal(size=200))
        new_measured = [site_score(a, rng)[0] for a in new_true[:5]]
        ranges = [
            (pooled.true_range, new_true),
            (pooled.plug_in_range, new_true),
            (pooled.measured_range(new_error), np.array(new_measured)),
        ]
        coverages.append([np.mean((low <= x) & (x <= high)) for (low, high), x in ranges])
    texts = [f"{value:.3f}" for value in (np.mean(differ), *np.mean(coverages, axis=0))]
    return [str(n_sites), f"{tau:g}", *texts]


def simulation(runs: int) -> str:
    """Simulate all settings, and return the part of the report."""
    headings = ["sites", "tau", "differ", "true score", "plug-in", "measured score"]
    rng = np.random.default_rng(0)
    rows = [simulate(n, tau, runs, rng) for n in N_SITES for tau in TAUS]
    lines = [f"| {' | '.join(row)} |" for row in (headings, ["---"] * len(headings), *rows)]
    shares = [float(row[2]) for row in rows if float(row[1]) == 0]
    coverages = [float(row[3]) for row in rows]
    return f"""## Simulated sites

Sites that do not differ are said to differ in {100 * min(shares):.0f} to
{100 * max(shares):.0f} % of the runs, and the 90 % range for the true score contains
{100 * min(coverages):.0f} to {100 * max(coverages):.0f} % of new sites.

Written by `benchmarks/next_site.py simulate`, with {runs} runs per setting. Sites have {N_ROWS}
rows and {100 * EVENTS:.0f} % events each. The logit of the true AUC varies between sites with
standard deviation tau around logit({AUC}); with tau = 0, one population is dealt out to the sites.
`pool_scores` gets the AUCs of the sites and their standard errors.

"differ" is the share of runs in which the sites are said to differ (5 % are expected with tau = 0).
The other columns are the coverages of 90 % ranges: for the true AUC at a new site (from the
confidence distribution of tau, and with the estimate plugged in), and for the AUC measured on
{N_ROWS} rows there.

{chr(10).join(lines)}
"""


@cache
def adult() -> Bunch:
    """The set adult."""
    return DATA_SETS["development"]["adult"]()


def dealt_out(
    n_sites: int, n_rows: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of one real table, dealt out at random to sites."""
    bunch = adult()
    rows = rng.permutation(len(bunch.target))[: n_sites * n_rows]
    X, y = np.asarray(bunch.data)[rows].astype(float), np.asarray(bunch.target)[rows]
    return X, y, np.repeat(np.arange(n_sites), n_rows)


def differing(
    n_sites: int, n_rows: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A column whose AUC differs between sites: the logit has standard deviation 0.5."""
    y, site = np.tile(np.arange(n_rows) < EVENTS * n_rows, n_sites), np.arange(n_sites)
    aucs = expit(logit(AUC) + TAUS[-1] * rng.normal(size=n_sites))
    site = np.repeat(site, n_rows)
    X = rng.normal(size=len(y)) + np.sqrt(2) * norm.ppf(aucs)[site] * y
    return X[:, None], y.astype(int), site


def statements(runs: int) -> str:
    """What `evaluate` says about sites: the part of the report."""
    warnings.simplefilter("ignore")
    rng, rows, shares = np.random.default_rng(0), [], []
    settings = [("one population", dealt_out, n, min(300, 5500 // n)) for n in N_SITES]
    settings += [("sites that differ", differing, 12, N_ROWS)]
    for kind, make, n_sites, n_rows in settings:
        counts: dict[str, int] = {}
        for _ in range(runs):
            evaluation = evaluate(
                *make(n_sites, n_rows, rng), methods=["linear"], quick=True, progress=False,
                scoring=["roc_auc", "balanced_accuracy"], max_rows=None, n_jobs=1,
            )  # fmt: skip
            for result in (evaluation, *evaluation.others):
                label = result.measure.label
                says_so = "Domains differ" in result.answer.certain
                counts[label] = counts.get(label, 0) + says_so
        for label, count in counts.items():
            rows.append([kind, str(n_sites), str(n_rows), label, f"{count / runs:.3f}"])
            shares.append((kind, count / runs))
    headings = ["data", "sites", "rows per site", "score", '"Domains differ"']
    lines = [f"| {' | '.join(row)} |" for row in (headings, ["---"] * len(headings), *rows)]
    null_shares = [share for kind, share in shares if kind == "one population"]
    return f"""## What `evaluate` says

Of one population dealt out at random, `evaluate` says "Domains differ" in
{100 * min(null_shares):.0f} to {100 * max(null_shares):.0f} % of the runs.

Written by `benchmarks/next_site.py evaluate`, with {runs} runs per setting: `evaluate` with a
logistic regression. For one population, rows of the set adult are drawn at random and dealt out to
sites. Sites that differ are simulated: one column, {100 * EVENTS:.0f} % events, and a standard
deviation of {TAUS[-1]} of the logit of the AUC between sites.

{chr(10).join(lines)}
"""


def main() -> None:
    """Run the benchmark, or write a part of the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["run", "report", "simulate", "evaluate"])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--sets", nargs="+", default=list(STAGE), choices=list(STAGE))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--ensemble", action="store_true")
    parser.add_argument(
        "--folds", type=int, default=FOLDS, help=("largest number of groups per data set")
    )
    options = parser.parse_args()
    if options.what == "run":
        run(options.sets, options.files[0], options.jobs, options.ensemble, options.folds)
        return
    if options.what == "report":
        replace_part(REPORT, report(options.files))
    else:
        part = {"simulate": simulation, "evaluate": statements}[options.what]
        replace_part(REPORT, part(options.runs))


if __name__ == "__main__":
    main()
