"""Is the recommended method the best one at new sites, if models are fitted to all rows?

``python benchmarks/recommended.py NAME … --out ROWS.jsonl`` holds out a quarter of the domains of
each data set, evaluates the other domains with the default budget, fits the methods to all of their
rows, and scores the fits on the held-out domains. This takes several minutes for each data set.
``--report --out ROWS.jsonl`` writes a part of GROWTH.md.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import growth
import measuring
import numpy as np

NAMES = ("large_adult", "large_bike", "large_airbnb", "large_beijing", "large_kc_house")
NAMES += ("gvhd", "hipc", "cytof")
#: Methods that are fitted to all rows; the SVM is fitted only if it is recommended.
METHODS = ("constant", "linear", "boosting", "dcmcv", "invariantridge", "ensemble")
#: Maximum number of scored rows per held-out domain.
SCORED_ROWS = 4000
#: A recommendation is good if it loses at most this much: per cent of RMSE, or points.
MAX_LOSS = {"%": 1.0, "points": 0.5}


def held_out_scores(method: Any, problem: Any, new: tuple[Any, Any, Any]) -> dict[str, float]:
    """Fit a method to all rows of a problem, and score it on each new domain."""
    from domainwise.held_out.scoring.predictions import Predictions, fit_with_domains

    rows = np.arange(len(problem.y))
    model = method.pipeline(problem.setting(len(rows)), problem.preprocessor)
    X, y, domain = new
    fit_with_domains(model, problem.rows(rows), problem.y, problem.domain_of(rows))
    scores = {}
    for label in np.unique(domain):
        at = np.flatnonzero(domain == label)
        at = np.sort(np.random.default_rng(0).permutation(at)[:SCORED_ROWS])
        outputs = Predictions(model, X.iloc[at], problem.classes).outputs(y[at])
        scores[str(label)] = float(problem.measure.score_outputs(problem.classes, outputs))
    return scores


def run(name: str) -> dict[str, Any]:
    """Evaluate three quarters of the domains, and score all methods on the others."""
    from domainwise.evaluation.plan import make_plan
    from domainwise.evaluation.problem import make_problem
    from domainwise.evaluation.run import compare_methods
    from domainwise.models.registry import choose_methods

    X, y, domain = growth.read(name)
    labels = np.random.default_rng(7).permutation(np.unique(domain))
    is_new = np.isin(domain, labels[:: growth.DEALT_GROUPS])
    sources = X[~is_new].reset_index(drop=True), y[~is_new], domain[~is_new]
    task = "classification" if growth.ALL_SETS[name].classes else "regression"
    options: dict[str, Any] = {"task": task, "scoring": None, "max_rows": None, "random_state": 0}
    problem, methods = make_problem(*sources, **options), choose_methods(None)
    started, wall = time.process_time(), time.perf_counter()
    plan = make_plan(problem, methods)
    evaluation = compare_methods(problem, methods, plan=plan, details=False, progress=False)
    seconds, wall = time.process_time() - started, time.perf_counter() - wall
    recommended = evaluation.recommended_.removesuffix("+context")
    scores, fit_seconds = {}, {}
    for method in methods:
        if method.key in (*METHODS, recommended):
            started = time.process_time()
            new = X[is_new].reset_index(drop=True), y[is_new], domain[is_new]
            scores[method.key] = held_out_scores(method, problem, new)
            fit_seconds[method.key] = time.process_time() - started
    means = {key: float(np.mean([*values.values()])) for key, values in scores.items()}
    best = max(means, key=lambda key: means[key])
    scale = 100 / abs(means[best] if problem.classes is None else 1.0)
    differences = [scores[best][d] - scores[recommended][d] for d in scores[best]]
    error = np.std(differences, ddof=1) / np.sqrt(len(differences))
    note = [text for text in evaluation.notes if "order of the methods" in text]
    return {
        "name": name,
        "rows": len(problem.y),
        "domains": len(problem.domains),
        "sizes": [size["rows"] for size in evaluation.facts["sizes"]],
        "size_scores": [size["scores"] for size in evaluation.facts["sizes"]],
        "groups": evaluation.plan.sizes[-1].groups,
        "planned_seconds": plan.seconds,
        "recommended": recommended,
        "best": best,
        "loss": scale * (means[best] - means[recommended]),
        "error": scale * float(error),
        "unit": "%" if problem.classes is None else "points",
        "seconds": seconds,
        "wall": wall,
        "fit_seconds": fit_seconds,
        "scores": means,
        "note": note[0] if note else "",
    }


def write_report(rows: list[dict[str, Any]], note: str) -> None:
    """Write the part of GROWTH.md on the recommended method."""
    n_good = sum(row["loss"] <= MAX_LOSS[row["unit"]] for row in rows)
    header = ["data set", "rows of source domains", "rows compared", "recommended"]
    header += ["best on held-out domains", "loss of the recommended method", "CPU s"]
    table = [
        [
            row["name"],
            f"{row['rows']:,}",
            " → ".join(f"{n:,}" for n in row["sizes"]),
            row["recommended"],
            row["best"],
            f"{row['loss']:.2f} ± {row['error']:.2f} {row['unit']}" if row["loss"] else "0",
            f"{row['seconds']:.0f}",
        ]
        for row in rows
    ]
    methods = [*dict.fromkeys(key for row in rows for key in row["scores"])]
    scores = [
        [
            row["name"],
            *(f"{abs(row['scores'][m]):.4f}" if m in row["scores"] else "–" for m in methods),
        ]
        for row in rows
    ]
    lines = [
        "## Is the recommended method of `evaluate` the best one?",
        "",
        f"On {n_good} of {len(rows)} data sets, the method that `evaluate` recommends with its "
        "default budget loses at most 1 % of RMSE or 0.5 points of accuracy on domains that "
        "neither the evaluation nor the fits have seen, compared with the best of all methods.",
        "",
        growth.table(header, table),
        "",
        "A quarter of the domains of each data set is held out. `evaluate` compares methods on the "
        "other domains; then each method is fitted to all of their rows, and scored on the "
        f"held-out domains (at most {SCORED_ROWS:,} rows of each). ± is the standard error of the "
        "paired difference over held-out domains. CPU s is the time of the evaluation.",
        "",
        "RMSE, balanced accuracy or accuracy, as means over held-out domains:",
        "",
        growth.table(["data set", *methods], scores),
        "",
        "Written by `python benchmarks/recommended.py --report`. "
        f"{measuring.machine()}. {measuring.versions()}. {note}",
        "",
    ]
    measuring.replace_part(growth.REPORT, "\n".join(lines))


def main() -> None:
    """Run data sets, or write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[*NAMES])
    parser.add_argument("--out", type=Path, default=Path("build/recommended.jsonl"))
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--note", default="", help="the commit, for the report")
    arguments = parser.parse_args()
    if arguments.report:
        lines = arguments.out.read_text(encoding="utf-8").splitlines()
        write_report([json.loads(line) for line in lines], arguments.note)
        return
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    for name in arguments.names:
        row = run(name)
        print(json.dumps(row, indent=1), flush=True)
        with arguments.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
