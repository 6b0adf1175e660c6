"""Times and screenshots of the page that evaluate writes, for three difficult tables.

The tables have a wrong unit, a hospital with 11 events, and 40 domains. ``python
benchmarks/pages.py OUT`` writes their pages and, if Chromium is on the PATH, screenshots: light,
dark, 390 pixels wide, printed. It prints the CPU seconds of each section, without the methods.
"""

import argparse
import importlib
import importlib.util
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pandas

from domainwise import evaluate
from domainwise.evaluation import gather, jobs, page

#: The module; the name ``evaluate`` in its package is the function.
EVALUATING = importlib.import_module("domainwise.evaluation.run")
TESTS = Path(__file__).resolve().parents[1] / "tests"


def hospitals(rows, seed=0, effect=1.0):
    """Patients of slightly different hospitals; ``rows`` has the number of patients by hospital."""
    rng = np.random.default_rng(seed)
    name = np.repeat(list(rows), list(rows.values()))
    n, codes = len(name), np.repeat(np.arange(len(rows)), list(rows.values()))
    shifts = rng.normal(0, 0.25, size=(len(rows), 4))[codes]
    severity = rng.normal(size=n)
    frame = pandas.DataFrame(
        {
            "hospital": name,
            "age": np.round(62 + 14 * (0.4 * severity + rng.normal(size=n) + shifts[:, 0])),
            "temperature": np.round(37 + 0.5 * (0.7 * severity + 0.6 * rng.normal(size=n)), 1),
            "lactate": np.round(
                np.exp(0.4 + 0.45 * (severity + shifts[:, 1]) + 0.3 * rng.normal(size=n)), 2
            ),
            "base excess": np.round(-2 - 3 * (0.7 * severity + 0.5 * rng.normal(size=n)), 1),
            "bmi": np.round(27 + 4 * (rng.normal(size=n) + shifts[:, 2]), 1),
            "ward": rng.choice(["surgery", "medicine", "other"], size=n, p=[0.5, 0.35, 0.15]),
        }
    )
    odds = effect * (severity + 0.3 * rng.normal(size=n)) - 0.4 + 0.5 * shifts[:, 3]
    frame["died"] = np.where(rng.random(n) < 1 / (1 + np.exp(-2 * odds)), "yes", "no")
    return frame


def unit_error():
    """°F at one hospital, a swapped sign at another, and a missing column at a third."""
    frame = hospitals(dict.fromkeys((f"hospital {mark}" for mark in "ABCDEF"), 333))
    rows_of = {mark: frame["hospital"] == f"hospital {mark}" for mark in "CDE"}
    frame.loc[rows_of["C"], "temperature"] = (
        frame.loc[rows_of["C"], "temperature"] * 1.8 + 32
    ).round(1)
    frame.loc[rows_of["D"], "bmi"] = np.nan
    frame.loc[rows_of["E"], "base excess"] *= -1
    return frame


def few_events():
    """Eleven deaths at one hospital, hundreds at the others."""
    frame = hospitals({"Ayr": 500, "Bath": 500, "Cork": 300, "Deal": 240, "Ely": 140, "Fife": 320})
    rows = np.flatnonzero((frame["hospital"] == "Ely") & (frame["died"] == "yes"))
    return frame.drop(index=rows[11:])


def many_domains():
    """A continuous target at forty sites with fifty rows each."""
    rng = np.random.default_rng(1)
    site = np.repeat([f"site {i:02d}" for i in range(40)], 50)
    codes = np.repeat(np.arange(40), 50)
    X = rng.normal(size=(2000, 6)) + 0.8 * rng.normal(size=(40, 6))[codes]
    y = 20 + 3 * X[:, 0] - 2 * X[:, 1] + X[:, 2] * X[:, 3] + rng.normal(0, 1.5, 2000)
    y += rng.normal(0, 1.0, 40)[codes]
    names = ["depth", "gamma ray", "density", "sonic", "clay", "age"]
    return pandas.DataFrame(X, columns=names).assign(site=site, porosity=y)


TABLES = {
    "unit": (unit_error, "died", "hospital"),
    "events": (few_events, "died", "hospital"),
    "forty": (many_domains, "porosity", "site"),
}


class Watch:
    """CPU seconds inside functions, by name."""

    def __init__(self):
        self.seconds = Counter()

    def on(self, owner, name):
        call = getattr(owner, name)

        def timed(*arguments, **options):
            started = time.process_time()
            try:
                return call(*arguments, **options)
            finally:
                self.seconds[name] += time.process_time() - started

        setattr(owner, name, timed)


def draw(page, out):
    """Screenshots of a page: light, dark, on a phone, and printed."""
    spec = importlib.util.spec_from_file_location("driver", TESTS / "browser" / "driver.py")
    driver = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(driver)
    if (path := driver.find_browser()) is None:
        print("No browser was found, so there are no screenshots.")
        return
    looks = {
        "light": {},
        "dark": {"dark": True},
        "phone": {"width": 390},
        "print": {"paper": True, "width": 718},
    }
    with driver.Browser(path) as browser:
        for name, look in looks.items():
            browser.open(page, **look)
            browser.picture(out / f"{name}.png")
        browser.print(out / "print.pdf")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--methods", default="constant,linear,svm,dcm")
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--max-rows", type=int, default=2000)
    options = parser.parse_args()
    watch = Watch()
    watch.on(jobs, "column_importance")
    watch.on(jobs.SeenJob, "_add_predictions")
    watch.on(EVALUATING, "describe_differences")
    watch.on(gather, "with_intervals")
    watch.on(page, "render")
    for name in options.tables.split(","):
        make, target, domain = TABLES[name]
        out = options.out / name
        out.mkdir(parents=True, exist_ok=True)
        frame = make()
        watch.seconds.clear()
        started = time.process_time()
        evaluation = evaluate(
            frame,
            target,
            domain,
            methods=options.methods.split(","),
            n_jobs=options.jobs,
            progress=False,
            max_rows=options.max_rows,
        )
        evaluation.report(out / "report.html", title=f"{target} on an unseen {domain}: {name}.csv")
        total = time.process_time() - started
        times = ", ".join(f"{section} {seconds:.2f}" for section, seconds in watch.seconds.items())
        print(f"{name}: {len(frame)} rows, {total:.1f} CPU seconds in total; {times}", flush=True)
        for fault in evaluation.differences["faults"]:
            print(f"  {fault['message']}")
        draw(out / "report.html", out)


if __name__ == "__main__":
    main()
