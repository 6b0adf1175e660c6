"""The part "evaluate" of speed.py: CPU time of `evaluate` for small and large tables.

Every evaluation runs in a separate process with one thread and one worker. Its CPU time is the sum
of the time of jobs, which workers share, and of all other steps: reading, checks, intervals, page.
The time on two idle cores is estimated from both. For comparison, the CPU time of one
leave-domains-out cross-validation of HistGradientBoosting with default parameters is measured on
the same rows.
"""

from __future__ import annotations

import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from measuring import Report, Result, peak_rss, run_point, serve_point

ROWS, DOMAINS, COLUMNS = 1189, 8, 14
#: Data sets for quick evaluations, by their name in data_sets.
QUICK = ["facies", "gvhd", "parkinsons", "adult", "bike", "communities", "landmine", "oilwells"]
QUICK += ["cytof", "hipc", "shoppers", "kc_house", "heart", "large"]


def small_table() -> tuple[Any, Any, Any]:
    """Draw the rows: domains differ in location, scale, size and class shares."""
    import numpy as np

    rng = np.random.default_rng(0)
    shares = np.array([2, 2, 3, 3, 4, 4, 5, 5]) / 28
    domain = np.sort(rng.choice(DOMAINS, ROWS, p=shares))
    scale = rng.uniform(0.7, 1.4, (DOMAINS, COLUMNS))
    location = rng.normal(scale=0.7, size=(DOMAINS, COLUMNS))
    X = rng.normal(size=(ROWS, COLUMNS)) * scale[domain] + location[domain]
    risk = X[:, 0] + X[:, 1] * X[:, 2] + np.sin(2 * X[:, 3]) + rng.normal(size=ROWS)
    risk += rng.normal(scale=0.5, size=DOMAINS)[domain]
    return X, np.where(risk > 0.2, "ill", "well"), np.array(list("abcdefgh"))[domain]


def large_table() -> tuple[Any, Any, Any]:
    """100,000 rows, 50 columns, 12 domains, two classes."""
    import numpy as np

    rng = np.random.default_rng(0)
    domain = rng.integers(12, size=100_000)
    X = rng.normal(size=(100_000, 50)) + rng.normal(size=(12, 50))[domain]
    risk = X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=len(X))
    return X, np.where(risk > 0, "ill", "well"), domain


def wide_table() -> tuple[Any, Any, Any]:
    """2,600 houses in 19 districts, with 37 numeric and 43 text columns; many cells are missing."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    n, n_numbers, n_texts = 2600, 37, 43
    district = rng.choice(19, n, p=rng.dirichlet(np.full(19, 3.0)))
    quality = rng.normal(size=n) + rng.normal(scale=0.7, size=19)[district]
    shares = rng.uniform(0.0, 1.0, n_numbers + n_texts)
    price = 12.0 + 0.3 * quality + 0.1 * rng.normal(size=n)
    columns: dict[str, Any] = {}
    for j in range(n_numbers):
        value = shares[j] * quality + rng.normal(size=n) + rng.normal(scale=0.3, size=19)[district]
        columns[f"number {j}"] = np.round(np.exp(value) if j % 3 else value, 2)
    for j in range(n_texts):
        value = shares[n_numbers + j] * quality + rng.normal(size=n)
        levels = int(rng.integers(2, 9))
        cuts = np.quantile(value, np.arange(1, levels) / levels)
        columns[f"text {j}"] = np.array(list("ABCDEFGH"), dtype=object)[np.digitize(value, cuts)]
    table = pd.DataFrame(columns)
    for name in table.columns[::6]:
        table[name] = table[name].mask(rng.random(n) < rng.uniform(0.02, 0.5))
    return table, price, np.array([f"district {code}" for code in district])


def mixed_table() -> tuple[Any, Any, Any]:
    """50,000 patients at 20 sites: 30 numeric and 10 text columns, some gaps, 8 % events."""
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    n, n_sites = 50_000, 20
    site = rng.choice(n_sites, n, p=rng.dirichlet(np.full(n_sites, 4.0)))
    Z = rng.normal(size=(n, 30)) @ (np.eye(30) + 0.15 * rng.normal(size=(30, 30)))
    Z += rng.normal(scale=0.5, size=(n_sites, 30))[site]
    risk = 0.8 * Z[:, 0] + 0.6 * Z[:, 1] * Z[:, 2] + 0.7 * np.sin(2 * Z[:, 3])
    columns: dict[str, Any] = {f"lab {j}": np.exp(z) if j % 4 else z for j, z in enumerate(Z.T)}
    for j in range(10):
        levels = 2 + j % 5
        code = np.digitize(Z[:, 10 + j] + rng.normal(size=n), np.linspace(-1.5, 1.5, levels - 1))
        columns[f"kind {j}"] = np.array(list("ABCDEF"), dtype=object)[code]
        risk += 0.3 * rng.normal(size=levels)[code]
    risk += rng.normal(scale=0.3, size=n_sites)[site] + rng.logistic(scale=0.8, size=n)
    table = pd.DataFrame(columns)
    for name in table.columns[::7]:
        table[name] = table[name].mask(rng.random(n) < rng.uniform(0.02, 0.3))
    outcome = np.where(risk > np.quantile(risk, 0.92), "died", "survived")
    return table, outcome, np.array([f"site {code}" for code in site])


def omics_table() -> tuple[Any, Any, Any]:
    """300 samples from 6 laboratories, with 2,000 correlated measurements; two classes."""
    import numpy as np

    rng = np.random.default_rng(0)
    laboratory = rng.integers(6, size=300)
    factors = rng.normal(size=(300, 20)) + rng.normal(scale=0.5, size=(6, 20))[laboratory]
    X = factors @ rng.normal(size=(20, 2000)) / 4 + rng.normal(size=(300, 2000))
    X += rng.normal(scale=0.5, size=(6, 2000))[laboratory]
    risk = factors[:, 0] + factors[:, 1] + rng.normal(size=300)
    return X, np.where(risk > 0, "ill", "well"), laboratory


#: The share of the rows that each domain has, by the name of the table.
SHARES = {"20 domains": [1 / 20] * 20, "200 domains": [1 / 200] * 200}
SHARES["1 giant and 9 tiny domains"] = [0.91] + [0.01] * 9


def divided_table(shares: list[float]) -> tuple[Any, Any, Any]:
    """3,000 rows with 20 columns from domains of these sizes; two classes."""
    import numpy as np

    rng = np.random.default_rng(0)
    domain = np.repeat(np.arange(len(shares)), (3000 * np.array(shares)).round().astype(int))
    X = rng.normal(size=(3000, 20)) + rng.normal(scale=0.5, size=(len(shares), 20))[domain]
    risk = X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=3000)
    risk += rng.normal(scale=0.5, size=len(shares))[domain]
    return X, np.where(risk > 0, "ill", "well"), domain


def load(name: str) -> tuple[Any, Any, Any]:
    """Rows, targets and domains of a data set."""
    from data_sets import DATA_SETS, STAGE

    from domainwise.datasets import load_heart

    tables = {"small": small_table, "large": large_table, "wide": wide_table, "mixed": mixed_table}
    tables["omics"] = omics_table
    if name in tables:
        return tables[name]()
    if name in SHARES:
        return divided_table(SHARES[name])
    bunch = load_heart() if name == "heart" else DATA_SETS[STAGE[name]][name]()
    return bunch.data, bunch.target, bunch.sample_domain


def boosting_seconds(problem: Any, splits: Any) -> float:
    """CPU seconds of a cross-validation of boosting on the splits."""
    from sklearn.base import clone
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind = HistGradientBoostingClassifier if problem.classification else None
    started = time.process_time()
    for train, test in splits:
        prepare = clone(problem.preprocessor).fit(problem.rows(train))
        model = (kind or HistGradientBoostingRegressor)(early_stopping=False)
        model.fit(prepare.transform(problem.rows(train)), problem.y[train])
        model.predict(prepare.transform(problem.rows(test)))
    return time.process_time() - started


def run(name: str, quick: bool = False) -> Result:
    """Evaluate a data set and write its page; return the CPU seconds of each step."""
    import tempfile

    from domainwise import evaluate
    from domainwise.evaluation import jobs
    from domainwise.evaluation.problem import outer_splits

    X, y, domain = load(name)
    method_seconds: dict[str, float] = {}
    seen: dict[str, Any] = {}
    run_job = jobs.MethodJob.run

    def timed(self: Any) -> Any:
        seen["problem"] = self.problem
        job_started = time.process_time()
        rows = run_job(self)
        key = self.method.key if self.part == "held-out" else "on seen domains"
        method_seconds[key] = method_seconds.get(key, 0.0) + time.process_time() - job_started
        return rows

    jobs.MethodJob.run = timed
    started, wall = time.process_time(), time.perf_counter()
    evaluation = evaluate(X, y, domain, quick=quick, progress=False)
    if find_spec("matplotlib"):
        with tempfile.TemporaryDirectory() as folder:
            evaluation.report(Path(folder) / "page.html")
    total, wall = time.process_time() - started, time.perf_counter() - wall
    job_seconds = sum(method_seconds.values())
    problem = seen["problem"]
    return {
        "total": total,
        "seconds": wall,
        "above": peak_rss(),
        "two_cores": total - job_seconds + job_seconds / 2,
        "methods": method_seconds,
        "boosting": boosting_seconds(problem, outer_splits(problem, None)),
        "shape": [problem.n_total, problem.X.shape[1], len(problem.domains), len(problem.y)],
        "left_out": sorted(evaluation.left_out),
        "sizes": [size.rows for size in evaluation.plan.sizes],
        "recommended": evaluation.recommended_,
        "best": evaluation.best.label,
    }


def measure_large(report: Report, *, quick: bool) -> None:
    """Measure default and quick evaluations of a large table (with ``quick``, only the latter)."""
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    report.text(
        "The table has 50,000 rows from 20 sites, 30 numeric and 10 text columns, and 8 % events. "
        "One worker is used; the time on two idle cores is estimated by halving the CPU time of "
        "the fits, which two workers would share. Memory is the peak of the process."
    )
    rows = []
    for kind, bound in {"quick": 30.0, "default": 180.0}.items():
        if kind == "default" and quick:
            continue
        point = {"task": "run", "name": "mixed", "quick": kind == "quick"}
        result = run_point(__file__, point, threads)
        text = f"50,000 x 40, {kind}"
        seconds = result["two_cores"]
        report.check(f"{text}: seconds on two cores", seconds, bound, form="{:.0f}", least=False)
        memory = result["above"] / 2**30
        report.check(f"{text}: memory (GiB)", memory, 4.0, form="{:.1f}", least=False)
        sizes = ", ".join(f"{n:,}" for n in result["sizes"])
        cells = [f"{result['total']:.0f}", f"{sum(result['methods'].values()):.0f}"]
        cells += [", ".join(result["left_out"]) or "–", result["recommended"]]
        rows.append([kind, sizes, *cells])
    report.table(["evaluation", "rows", "CPU s", "of fits", "skipped", "recommended"], rows)


def measure(report: Report, *, quick: bool) -> None:
    """Measure all evaluations (with ``quick``, two short ones), and add them to the report."""
    points: dict[str, dict[str, Any]] = {
        "small, default": {"name": "small"},
        "house prices, default": {"name": "kc_house"},
        "2,600 x 80, default": {"name": "wide"},
        "300 x 2,000, default": {"name": "omics"},
    }
    points |= {f"{name}, default": {"name": name} for name in SHARES}
    points |= {f"quick: {name}": {"name": name, "quick": True} for name in QUICK}
    if quick:
        points = {name: points[name] for name in ("quick: heart", "quick: bike")}
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    results = {
        name: run_point(__file__, {"task": "run", **point}, threads)
        for name, point in points.items()
    }
    page = "including the report" if find_spec("matplotlib") else "without the report"
    report.text(
        f"Times are CPU seconds with one thread and one worker, {page}. *Two cores* is the "
        "estimated time on two idle cores, where two workers share the jobs but not the other "
        "steps. The ratio compares the CPU time with that of one leave-domains-out "
        "cross-validation of HistGradientBoosting (default parameters) on the same training rows."
    )
    rows = []
    for name, result in results.items():
        bound = 30.0 if name.startswith("quick") else 120.0 if "2,000" in name else 300.0
        seconds = result["two_cores"]
        description = f"{name}: seconds on two cores"
        report.check(description, seconds, bound, form="{:.0f}", least=False)
        numbers = [f"{n:,}" for n in result["shape"]]
        times = [f"{result['total']:.1f}", f"{seconds:.1f}"]
        ratio = f"{result['total'] / result['boosting']:.0f}"
        rows.append([name, *numbers, *times, ratio, ", ".join(result["left_out"]) or "–"])
    if wide := results.get("2,600 x 80, default"):
        description = "2,600 x 80, default: CPU seconds"
        report.check(description, wide["total"], 150.0, form="{:.0f}", least=False)
    equal_domains, *others = SHARES
    for name in others if f"{equal_domains}, default" in results else ():
        ratio = results[f"{name}, default"]["total"] / results[f"{equal_domains}, default"]["total"]
        description = f"{name}: CPU time relative to {equal_domains}"
        report.check(description, ratio, 2.0, form="{:.2f}", least=False)
    header = ["evaluation", "rows", "columns", "domains", "training rows"]
    report.table([*header, "CPU s", "two cores, s", "ratio", "skipped"], rows)
    names = [name for name in results if not name.startswith("quick")]
    keys = list(dict.fromkeys(key for name in names for key in results[name]["methods"]))
    if names:
        report.text("CPU seconds by method:")
        report.table(
            ["method", *names],
            [[k, *(f"{results[n]['methods'].get(k, 0.0):.1f}" for n in names)] for k in keys],
        )


if __name__ == "__main__":
    serve_point(sys.argv[2], {"run": run})
