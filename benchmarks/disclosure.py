"""Federated fits: how limits on site files affect scores, and attacks on these files.

The first part scores models on domains that did not take part in the fit. Every source domain is a
site, which sends the default file. For comparison, sites accept the disclosure of 30, 100 and 500
columns in each of six maps. The second part runs three tests of whether a row is in the data, based
on a site's second moments.

    python benchmarks/disclosure.py           both parts, then DISCLOSURE.md
    python benchmarks/disclosure.py --quick   one data set and few repeats; writes no files

Data are read from ``$DOMAINWISE_DATA``, or from ``../shared/data``.
"""

from __future__ import annotations

import argparse
import os
import sys
from itertools import product
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from measuring import Report, Result, measured, run_point, serve_point, size  # noqa: E402

# Files in this folder, such as distributed.py, must not hide installed packages.
sys.path[:] = [entry for entry in sys.path if entry != str(HERE)]

#: File, target, and columns that leak the target.
DATA_SETS: dict[str, tuple[str, str, list[str]]] = {
    "heart": ("heart_hospitals.csv.gz", "label", []),
    "adult": ("adult_occupations.csv.gz", "over_50k", []),
    "shoppers": ("shoppers_months.csv.gz", "Revenue", []),
    "bike": ("bike_seasons.csv.gz", "log_count", []),
    "communities": ("communities_states.csv.gz", "log_violent_crimes", []),
}
COLUMNS = (30, 100, 500)
#: Number of groups of domains; each group is held out once.
GROUPS = 4
#: Seeds of maps with few columns, over which scores are averaged; other maps have one seed.
SEEDS, FEW = 4, 50
#: Rows at a site in the membership tests, and the number of repeats.
SITE_ROWS, REPEATS = (150, 600, 3000), 20
MEMBERSHIP = ("span", "leverage", "reference")
#: Rows from which the third test knows the distribution.
POPULATION = 20_000


def accuracy_of(name: str, columns: int | None) -> Result:
    """Scores on held-out domains; without ``columns``, with the default files."""
    import warnings

    import numpy as np
    import pandas as pd
    from sklearn.metrics import balanced_accuracy_score, root_mean_squared_error

    from domainwise.federated import DisclosureError, Plan, fit, merge, moments, statistics

    warnings.simplefilter("ignore")
    file, target, dropped_columns = DATA_SETS[name]
    folder = Path(os.environ.get("DOMAINWISE_DATA", HERE.parent.parent / "shared" / "data"))
    table = pd.read_csv(folder / file).drop(columns=dropped_columns)
    sites = {str(domain): rows for domain, rows in table.groupby("domain")}
    order = np.random.default_rng(0).permutation(sorted(sites))
    is_accepted = columns is not None
    options: dict[str, Any] = (
        {"n_features": columns, "second_moments": "classes"} if is_accepted else {}
    )
    seeds = SEEDS if columns is None or columns < FEW else 1
    scores, used_rows, total_rows, shapes = [], 0, 0, []
    with measured() as meter:
        for group, seed in product(range(GROUPS), range(seeds)):
            held_out = set(order[group::GROUPS])
            sources = {site: rows for site, rows in sites.items() if site not in held_out}
            rows = pd.concat(sources.values())
            plan = Plan.of_table(rows, target=target, domain="domain", seed=seed, **options)
            first_files = [
                statistics(rows, plan, site=site, accept_disclosure=is_accepted)
                for site, rows in sources.items()
            ]
            merged_plan, second_files = merge(plan, first_files), []
            for site, rows in sources.items():
                total_rows += len(rows)
                try:
                    second_files.append(
                        moments(rows, merged_plan, site=site, accept_disclosure=is_accepted)
                    )
                    used_rows += int(second_files[-1].arrays["counts"].sum())
                except DisclosureError:
                    continue
            model = fit(merged_plan, second_files)
            shapes.append((merged_plan.merged["columns"], len(merged_plan.maps)))
            test_rows = pd.concat([sites[site] for site in sorted(held_out)])
            predicted = model.predictions(model.schema.prepare(test_rows))["prediction"].to_numpy()
            truth = test_rows[target].to_numpy()
            if plan.classes is None:
                scores.append(root_mean_squared_error(truth, predicted.astype(float)))
            else:
                scores.append(balanced_accuracy_score(truth, predicted))
    return meter.result(
        score=float(np.mean(scores)),
        used=used_rows / total_rows,
        columns=[min(m for m, _ in shapes), max(m for m, _ in shapes)],
        maps=max(k for _, k in shapes),
        rows=len(table),
        domains=len(sites),
        measure="RMSE" if plan.classes is None else "balanced accuracy",
    )


def membership(rows: int, repeats: int, columns: int | None) -> Result:
    """Areas under the ROC curve for three membership tests, averaged over repeats.

    Rows have five independent normal columns. The span test computes how far a row lies outside the
    range of a second moment, and the leverage test computes its leverage. The third test compares
    the second moment with that of the known distribution.
    """
    import numpy as np
    import pandas as pd
    from sklearn.metrics import roc_auc_score

    from domainwise.federated import Plan, merge, moments, statistics

    def draw(n: int) -> Any:
        X = rng.normal(size=(n, 5))
        frame = pd.DataFrame(X, columns=list("abcde"))
        return frame.assign(site="s", ill=X[:, 0] + rng.normal(size=n) > 0)

    def map_rows(plan: Plan, table: Any) -> Any:
        return plan.maps[0].features(plan.prepare.transform(plan.schema.prepare(table)))

    accept = {"accept_disclosure": columns is not None}
    options: dict[str, Any] = {"n_features": columns, "second_moments": "classes"}
    rng, areas = np.random.default_rng(0), []
    with measured() as meter:
        for _ in range(repeats):
            tables = {"s0": draw(rows), "s1": draw(rows)}
            plan_options = options if columns is not None else {}
            plan = Plan.of_table(tables["s0"], target="ill", **plan_options)
            first = [statistics(t, plan, site=site, **accept) for site, t in tables.items()]
            plan = merge(plan, first)
            site_file = moments(tables["s0"], plan, site="s0", **accept)
            members, non_members = (
                table[~table["ill"]] for table in (tables["s0"], draw(2 * rows))
            )
            non_members = non_members[: len(members)]
            labels = np.repeat([1, 0], [len(members), len(non_members)])
            mean = site_file.arrays["sums0"][0].sum(axis=0) / site_file.arrays["counts"][0].sum()
            features = map_rows(plan, pd.concat([members, non_members])) - mean
            second_moment = np.zeros((features.shape[1], features.shape[1]))
            second_moment[np.triu_indices(len(second_moment))] = site_file.arrays["second0"][0]
            second_moment += np.triu(second_moment, 1).T
            values, vectors = np.linalg.eigh(second_moment)
            spanned = values > 1e-9 * values[-1]
            coordinates = features @ vectors[:, spanned]
            residuals = features - coordinates @ vectors[:, spanned].T
            distance_to_span = np.linalg.norm(residuals, axis=1)
            leverage = (coordinates**2 / values[spanned]).sum(axis=1)
            population, is_pooled = draw(POPULATION), len(site_file.arrays["second0"]) == 1
            samples = [population[~population["ill"]], population[population["ill"]]]
            samples = [map_rows(plan, sample) for sample in samples[: 1 + is_pooled]]
            centred = np.vstack([sample - sample.mean(axis=0) for sample in samples])
            variances, axes = np.linalg.eigh(centred.T @ centred / len(centred))
            is_large = variances > 1e-9 * variances[-1]
            whitening = axes[:, is_large] / np.sqrt(variances[is_large])
            n = site_file.arrays["counts"].sum() if is_pooled else len(members)
            change = whitening.T @ second_moment @ whitening / n - np.eye(whitening.shape[1])
            z = features @ whitening
            reference = ((z @ change) * z).sum(axis=1) / (z**2).sum(axis=1)
            scores = (-distance_to_span, -leverage, reference)
            areas.append([roc_auc_score(labels, score) for score in scores])
    by_test = dict(zip(MEMBERSHIP, np.mean(areas, axis=0).tolist(), strict=True))
    return meter.result(**by_test, columns=int(plan.first_round("columns")))


TASKS = {"accuracy": accuracy_of, "membership": membership}


def report_accuracy(report: Report, results: dict[tuple[str, int | None], Result]) -> None:
    """Add the table of scores, with the properties of the default files."""
    report.text("## The effect of the default limits on scores")
    report.text(
        "Every domain is a site, and the domains of one of four groups are held out in turn. "
        f"Scores are means over groups, and over {SEEDS} seeds for the default and for maps with "
        f"fewer than {FEW} columns. By default, the number of columns is computed from the sites' "
        "counts. The other files contain second moments by class of six maps, and were "
        "written with `accept_disclosure=True`. The metric is balanced accuracy (larger is "
        "better), or RMSE if the table says so (smaller is better)."
    )
    header = ["data (rows, sites)", "default", "columns by default"]
    header += ["maps by default", "rows in default files"]
    rows = []
    for name in dict.fromkeys(name for name, _ in results):
        default = results[name, None]
        measure = ", RMSE" if default["measure"] == "RMSE" else ""
        low, high = default["columns"]
        cells = [f"{name} ({size(default['rows'])}, {default['domains']}{measure})"]
        cells += [f"{default['score']:.3f}", f"{low}" if low == high else f"{low} to {high}"]
        cells += [str(default["maps"]), f"{default['used']:.0%}"]
        rows.append(cells + [f"{results[name, m]['score']:.3f}" for m in COLUMNS])
    report.table([*header, *(f"{m} columns, accepted" for m in COLUMNS)], rows)


def report_membership(report: Report, results: dict[tuple[int, int | None], Result]) -> None:
    """Add the table of membership tests, and the check of default files."""
    report.text("## Tests of whether a row is in the data")
    report.text(
        "There are two sites with five normally distributed columns. The table shows the area "
        "under the ROC curve of tests that distinguish the rows of one class at the first site "
        f"from the same number of new rows, averaged over {REPEATS} repeats. 0.5 is chance, and 1 "
        "means that every row is classified correctly. The span and leverage tests need only "
        "the file. The third test also knows the distribution at the site, from "
        f"{size(POPULATION)} other rows. The accepted file has 500 columns and second moments by "
        "class."
    )
    header = ["rows at the site", "columns", *MEMBERSHIP]
    rows = []
    for n in SITE_ROWS:
        default, accepted = results[n, None], results[n, 500]
        cells = [f"{r[test]:.2f}" for r in (default, accepted) for test in MEMBERSHIP]
        rows.append([size(n), str(default["columns"]), *cells])
        report.check(
            f"membership at a site with {size(n)} rows, default file: distance of the AUC from 0.5",
            max(abs(default[test] - 0.5) for test in ("span", "leverage")),
            0.1,
            form="{:.2f}",
            least=False,
        )
    report.table([*header, *(f"accepted: {test}" for test in MEMBERSHIP)], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="measure few points, write no files")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.point:
        sys.path.insert(0, str(HERE.parent / "src"))
        serve_point(arguments.point, TASKS)
        return
    script, report = (
        str(Path(__file__)),
        Report(
            "What site files disclose, and how the limits affect scores",
            "python benchmarks/disclosure.py",
            "Every measurement ran in a separate process.",
        ),
    )
    names = ["heart"] if arguments.quick else list(DATA_SETS)
    points = [(name, m) for name in names for m in (None, *COLUMNS)]
    report_accuracy(
        report,
        {p: run_point(script, {"task": "accuracy", "name": p[0], "columns": p[1]}) for p in points},
    )
    repeats = 2 if arguments.quick else REPEATS
    tests = [(n, m) for n in SITE_ROWS for m in (None, 500)]
    point = {"task": "membership", "repeats": repeats}
    report_membership(
        report,
        {t: run_point(script, {**point, "rows": t[0], "columns": t[1]}) for t in tests},
    )
    report.write(None if arguments.quick else HERE / "DISCLOSURE.md")


if __name__ == "__main__":
    main()
