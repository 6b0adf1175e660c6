"""Detection of planted faults, and false alarms on clean tables: writes PLANTED_FAULTS.md.

Twelve kinds of faults with three strengths are planted, one at a time, in tables drawn from eight
development sets. ``python benchmarks/planted_faults.py --jobs 8`` runs everything. ``--half tuned``
runs the sets and kinds on which thresholds were chosen, and ``--half test`` runs the others.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import measuring  # noqa: F401  (lets Python find reproduction)
import numpy as np
from joblib import Parallel, delayed
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict

from domainwise.evaluation.faults import Fault, find_faults
from domainwise.evaluation.plots.columns import columns_of
from domainwise.held_out.folds import draw_rows
from reproduction import data as datasets

Array = np.ndarray[Any, Any]
HERE = Path(__file__).resolve().parent
STRENGTHS = ("weak", "medium", "strong")
#: Largest numbers of rows and domains in a table, and tables per set, kind and strength.
ROWS, DOMAINS, DRAWS = 6000, 12, 5

#: Data sets, and columns that are dropped because they already have faults.
TUNED_SETS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "heart": (datasets.load_heart, ("chol", "ca", "thal", "slope", "fbs")),
    "facies": (lambda **k: datasets.load_facies(missing="keep", **k), ("PE",)),
    "parkinsons": (datasets.load_parkinsons, ("Jitter:DDP", "Shimmer:DDA")),
    "bike": (datasets.load_bike, ()),
}
TEST_SETS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "gvhd": (datasets.load_gvhd, ()),
    "synthetic": (
        lambda **_: datasets.make_synthetic(0.1, n_per_domain=300, random_state=0),
        (),
    ),
    "adult": (datasets.load_adult, ()),
    "communities": (datasets.load_communities, ()),
}
#: Data sets that were not used to choose thresholds, for alarms on clean tables.
CLEAN_SETS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "landmine": (datasets.load_landmine, ()),
    "oilwells": (datasets.load_oilwells, ()),
    "cytof": (lambda **k: datasets.load_cytof(cofactor=5, **k), ()),
    "hipc": (datasets.load_hipc, ()),
    "shoppers": (datasets.load_shoppers, ()),
    "kc_house": (datasets.load_kc_house, ()),
}


@dataclass(frozen=True)
class Table:
    """A table, and the column and domains of its planted fault."""

    columns: dict[str, Array]
    y: Array
    classification: bool
    codes: Array
    column: str = ""  #: column of the fault
    domains: tuple[int, ...] = ()  #: domains of the fault; empty if all

    def faults(self) -> list[Fault]:
        """Faults that the checks report."""
        names = [f"site {d}" for d in range(self.codes.max() + 1)]
        columns = list(self.columns.items())
        return find_faults(columns, self.y, self.classification, self.codes, names)

    def with_column(self, name: str, values: Array, domains: tuple[int, ...] = ()) -> Table:
        """A copy of the table with a new or changed column."""
        columns = {**self.columns, name: values}
        return replace(self, columns=columns, column=name, domains=domains)

    def quantities(self) -> list[str]:
        """Columns with many distinct numbers in all domains."""
        return [
            name
            for name, x in self.columns.items()
            if x.dtype.kind == "f"
            and len(np.unique(x[np.isfinite(x)])) > 10
            and all(np.isfinite(x[self.codes == d]).mean() > 0.9 for d in range(self.n_domains))
        ]

    @property
    def n_domains(self) -> int:
        """Number of domains."""
        return int(self.codes.max()) + 1


LOADED: dict[str, tuple[list[tuple[str, Array]], Array, bool, Array]] = {}


def simulated(seed: int) -> Table:
    """A clean table with columns of many distributions, whose levels differ between domains."""
    rng = np.random.default_rng(seed)
    n_domains, n_columns = int(rng.integers(3, 30)), int(rng.integers(3, 30))
    sizes = np.exp(rng.uniform(np.log(5), np.log(400), size=n_domains)).astype(int)
    codes = np.repeat(np.arange(n_domains), sizes)
    hidden = rng.normal(size=(len(codes), 3))
    columns: dict[str, Array] = {}
    for j in range(n_columns):
        between, noise = rng.choice([0.0, 0.3, 1.0, 3.0]), rng.choice([0.2, 1.0])
        x = hidden @ rng.normal(size=3) + noise * rng.normal(size=len(codes))
        x += between * rng.normal(size=n_domains)[codes]
        shape = rng.integers(5)
        x = (x, np.exp(x), np.round(2 * x), np.maximum(x, 0.0), 50 + 10 * x)[shape]
        x[rng.random(len(x)) < rng.choice([0.0, 0.0, 0.1, 0.4])] = np.nan
        columns[f"c{j}"] = x
    y = hidden[:, 0] + rng.choice([0.1, 1.0]) * rng.normal(size=len(codes))
    if rng.random() < 0.5:
        y = (y > rng.choice([0.0, 1.0])).astype(int)
    return Table(columns, y, y.dtype.kind == "i", codes)


def drawn(name: str, seed: int) -> Table:
    """Rows of some domains of a data set, without the faults that it contains."""
    if name == "simulated":
        return simulated(seed)
    if name not in LOADED:
        load, dropped_columns = (TUNED_SETS | TEST_SETS | CLEAN_SETS)[name]
        bunch = load(as_frame=True)
        frame = bunch.data
        if "frame" in bunch and frame.shape[1] > bunch.frame.shape[1]:
            text_sources = [
                c for c in bunch.frame.columns if any(str(f).startswith(c) for f in frame)
            ]
            frame = bunch.frame[text_sources]  # text columns as text
        if hasattr(frame, "drop"):
            frame = frame.drop(columns=list(dropped_columns))
        y = np.asarray(bunch.target)
        y = y[:, 0] if y.ndim == 2 else y
        classification = y.dtype.kind not in "f" or len(np.unique(y)) <= 10
        codes = np.unique(np.asarray(bunch.sample_domain), return_inverse=True)[1]
        LOADED[name] = columns_of(frame), y, classification, codes
    columns, y, classification, codes = LOADED[name]
    rng = np.random.default_rng(seed)
    chosen_domains = rng.permutation(codes.max() + 1)[:DOMAINS]
    rows = np.flatnonzero(np.isin(codes, chosen_domains))
    rows = rows[draw_rows(np.unique(codes[rows], return_inverse=True)[1], ROWS, seed)]
    codes = np.unique(codes[rows], return_inverse=True)[1]
    return Table({n: x[rows].copy() for n, x in columns}, y[rows], classification, codes)


# Functions that plant a fault: they take a table, the strength (0 to 2) and a random generator.


def a_domain(table: Table, rng: np.random.Generator) -> int:
    """A domain with at least 30 rows, or else the largest domain."""
    sizes = np.bincount(table.codes)
    large_domains = np.flatnonzero(sizes >= 30)
    return int(rng.choice(large_domains)) if len(large_domains) else int(np.argmax(sizes))


def noisy_target(table: Table, strength: int, rng: np.random.Generator) -> Array:
    """The target with 5, 2 or 0 % wrong rows, or with noise."""
    share = (0.05, 0.02, 0.0)[strength]
    if not table.classification:
        return np.asarray(table.y + 2 * share * np.std(table.y) * rng.normal(size=len(table.y)))
    codes = np.unique(table.y, return_inverse=True)[1].astype(float)
    is_wrong = rng.random(len(codes)) < share
    return np.where(is_wrong, rng.permutation(codes), codes)


def leak(table: Table, strength: int, rng: np.random.Generator) -> Table:
    """The target, wrong in 5, 2 or 0 % of rows, or with noise of 10, 4 or 0 % of its deviation."""
    values = noisy_target(table, strength, rng)
    return table.with_column("followup", values + 0.05 * rng.normal(size=len(values)))


def leak_in_some(table: Table, strength: int, rng: np.random.Generator) -> Table:
    """The target in one domain, a third or two thirds of the domains; shuffled in the others."""
    count = max(1, round((0.0, 0.34, 0.67)[strength] * table.n_domains))
    first_domain = a_domain(table, rng)
    other_domains = rng.permutation([d for d in range(table.n_domains) if d != first_domain])
    domains = tuple(sorted([first_domain, *other_domains[: count - 1].tolist()]))
    exact_target = noisy_target(table, 2, rng)
    values = np.where(np.isin(table.codes, domains), exact_target, rng.permutation(exact_target))
    return table.with_column("outcome_code", values + 0.05 * rng.normal(size=len(values)), domains)


def leaking_gaps(table: Table, strength: int, rng: np.random.Generator) -> Table:
    """Missing for one class (or the upper half of the targets) in 90, 97 or 100 % of the rows."""
    share = (0.9, 0.97, 1.0)[strength]
    is_positive = table.y == np.unique(table.y)[-1]
    if not table.classification or len(np.unique(table.y)) > 2:
        codes = np.unique(table.y, return_inverse=True)[1]
        is_positive = codes > np.median(codes)
        table = replace(table, y=is_positive.astype(int), classification=True)
    missing = np.where(rng.random(len(is_positive)) < share, ~is_positive, is_positive)
    return table.with_column("result", np.where(missing, np.nan, rng.normal(size=len(is_positive))))


def leaking_category(table: Table, strength: int, rng: np.random.Generator) -> Table:
    """A text for each class, wrong in 5, 2 or 0 % of the rows; for a number, 6, 10 or 20 groups."""
    values = noisy_target(table, strength, rng)
    if not table.classification:
        cuts = np.quantile(values, np.linspace(0, 1, (6, 10, 20)[strength] + 1)[1:-1])
        values = np.searchsorted(cuts, values).astype(float)
    letters = rng.permutation(int(values.max()) + 1)
    text = np.array([f"group {letters[int(v)]}" for v in values], dtype=object)
    return table.with_column("treatment", text)


def unit(table: Table, strength: int, rng: np.random.Generator) -> Table:
    """Values in one domain times 2.2 (in a column called weight), 10 or 1,000."""
    name, d = str(rng.choice(table.quantities())), a_domain(table, rng)
    factor = (2.20462, 10.0, 1000.0)[strength]
    values = table.columns[name].copy()
    values[table.codes == d] *= factor
    if strength:
        return table.with_column(name, values, (d,))
    other_columns = {n: x for n, x in table.columns.items() if n != name}
    return replace(table, columns=other_columns).with_column(f"{name} weight", values, (d,))


def sign(table: Table, strength: int, rng: np.random.Generator) -> Table:
    """Values in one domain times -1 (low, medium or high correlation with other columns)."""
    names = table.quantities()
    d = a_domain(table, rng)
    rows = table.codes == d
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        X = np.column_stack([np.nan_to_num(table.columns[n]) for n in names])
        domain_correlations = [np.corrcoef(X[table.codes == e].T) for e in range(table.n_domains)]
    correlations = np.abs(np.nanmedian(np.array(domain_correlations), axis=0)) - np.eye(len(names))
    order = np.argsort(np.nan_to_num(correlations).max(axis=0))
    name = names[order[(0, len(order) // 2, -1)[strength]]]
    values = table.columns[name].copy()
    values[rows] *= -1
    return table.with_column(name, values, (d,))


def filler(table: Table, strength: int, rng: np.random.Generator) -> Table:
    """0, -999 or 99999 in 25, 50 or 100 % of the rows of one domain."""
    name, d = str(rng.choice(table.quantities())), a_domain(table, rng)
    rows = np.flatnonzero(table.codes == d)
    filled_rows = rng.permutation(rows)[: int(len(rows) * (0.25, 0.5, 1.0)[strength])]
    values = table.columns[name].copy()
    values[filled_rows] = rng.choice([0.0, -999.0, 99999.0])
    return table.with_column(name, values, (d,))


def missing(table: Table, strength: int, rng: np.random.Generator) -> Table:
    """Missing in 60, 80 or 100 % of the rows of one domain."""
    name, d = str(rng.choice(table.quantities())), a_domain(table, rng)
    rows = np.flatnonzero(table.codes == d)
    empty_rows = rng.permutation(rows)[: int(len(rows) * (0.6, 0.8, 1.0)[strength])]
    values = table.columns[name].copy()
    values[empty_rows] = np.nan
    return table.with_column(name, values, (d,))


def identifier(table: Table, strength: int, rng: np.random.Generator) -> Table:
    """A different text in each row, whole numbers in random order, or row numbers."""
    order = np.arange(len(table.y))
    if strength == 0:
        return table.with_column("id", np.array([f"p{i:x}" for i in order], dtype=object))
    values = 10_000.0 + (rng.permutation(order) if strength == 1 else order)
    return table.with_column("id", values)


def domain_copy(table: Table, strength: int, rng: np.random.Generator) -> Table:
    """The name of the domain, wrong in 1 % of the rows, as numbers, or as text."""
    wrong = rng.random(len(table.y)) < (0.01 if strength == 0 else 0.0)
    codes = np.where(wrong, rng.integers(table.n_domains, size=len(wrong)), table.codes)
    if strength == 1:
        return table.with_column("region", rng.permutation(table.n_domains)[codes].astype(float))
    return table.with_column("region", np.array([f"r{c}" for c in codes], dtype=object))


def column_copy(table: Table, strength: int, rng: np.random.Generator) -> Table:
    """Another column, times 2.54, with noise of 1, 0.1 or 0 % of its deviation."""
    x = table.columns[str(rng.choice(table.quantities()))]
    noise = (0.01, 0.001, 0.0)[strength] * np.nanstd(x) * rng.normal(size=len(x))
    return table.with_column("again", 2.54 * (x + noise) + (1.0 if strength == 2 else 0.0))


def row_copies(table: Table, strength: int, rng: np.random.Generator) -> Table:
    """8, 20 or 50 % of the rows of one domain copied into another."""
    sizes = np.bincount(table.codes)
    large_domains = np.argsort(-sizes)[: max(4, len(sizes) // 2)]
    source_domain, target_domain = rng.permutation(large_domains)[:2].tolist()
    count = int((0.08, 0.2, 0.5)[strength] * min(sizes[source_domain], sizes[target_domain]))
    source = rng.permutation(np.flatnonzero(table.codes == source_domain))[:count]
    target = rng.permutation(np.flatnonzero(table.codes == target_domain))[:count]
    columns = {name: x.copy() for name, x in table.columns.items()}
    y = table.y.copy()
    for values in (*columns.values(), y):
        values[target] = values[source]
    return replace(table, columns=columns, y=y, domains=(source_domain, target_domain))


Plant = Callable[[Table, int, np.random.Generator], Table]
#: Function that plants each kind, and the kinds of reports that count as a detection.
TUNED_KINDS: dict[str, tuple[Plant, tuple[str, ...]]] = {
    "leak": (leak, ("leak",)),
    "leaking category": (leaking_category, ("leak",)),
    "unit": (unit, ("unit",)),
    "filler": (filler, ("filler",)),
    "identifier": (identifier, ("identifier",)),
    "copied column": (column_copy, ("copied column",)),
}
TEST_KINDS: dict[str, tuple[Plant, tuple[str, ...]]] = {
    "leak in some domains": (leak_in_some, ("leak",)),
    "leaking missing cells": (leaking_gaps, ("leak",)),
    "sign": (sign, ("sign",)),
    "missing": (missing, ("missing",)),
    "copy of the domain": (domain_copy, ("copy of the domain",)),
    "copied rows": (row_copies, ("copied rows",)),
}
LEAKS = ("leak", "leaking category", "leak in some domains", "leaking missing cells")


def rest_score(table: Table) -> float:
    """Score within domains without the planted column: AUC or rank correlation, mean of three."""
    columns = [
        x if x.dtype.kind == "f" else np.unique(x.astype(str), return_inverse=True)[1]
        for name, x in table.columns.items()
        if name != table.column
    ]
    X, scores = np.column_stack(columns).astype(float), []
    domains = table.domains or np.argsort(-np.bincount(table.codes))
    for d in list(domains)[:3]:
        rows = np.flatnonzero(table.codes == d)[:1000]
        y = table.y[rows]
        if table.classification:
            names, counts = np.unique(y, return_counts=True)
            y = (y == names[np.argmax(counts)]).astype(int)
            if min(y.sum(), len(y) - y.sum()) < 8:
                continue
            model: Any = HistGradientBoostingClassifier(max_iter=40, min_samples_leaf=5)
            p = cross_val_predict(model, X[rows], y, cv=4, method="predict_proba")
            scores.append(roc_auc_score(y, p[:, 1]))
        elif len(rows) >= 20:
            model = HistGradientBoostingRegressor(max_iter=40, min_samples_leaf=5)
            p = cross_val_predict(model, X[rows], y, cv=4)
            ranks = [np.argsort(np.argsort(v)) for v in (y, p)]
            scores.append(np.corrcoef(*ranks)[0, 1])
    return float(np.mean(scores)) if scores else float("nan")


#: Scores without the planted column, which are computed once for tables that differ only in it.
SCORES_WITHOUT: dict[tuple[Any, ...], float] = {}


def run_job(name: str, kind: str, strength: int, seed: int) -> dict[str, Any]:
    """Plant one fault, or none, and run the checks."""
    table = drawn(name, seed)
    result: dict[str, Any] = {"set": name, "kind": kind, "strength": strength, "seed": seed}
    if kind == "clean":
        faults = table.faults()
        alarms = [fault for fault in faults if fault.severity > 1]
        remarks = [fault for fault in faults if fault.severity == 1]
        texts = [f"{fault.kind}: {fault.message}" for fault in faults]
        return result | {"alarms": len(alarms), "remarks": len(remarks), "texts": texts}
    plant, accepted_kinds = (TUNED_KINDS | TEST_KINDS)[kind]
    table = plant(table, strength, np.random.default_rng(seed))
    faults = table.faults()
    sites = {f"site {d}" for d in table.domains}
    hits = [
        fault
        for fault in faults
        if fault.kind in accepted_kinds
        and (not table.column or table.column in fault.columns)
        and (not sites or not fault.domains or sites & {*fault.domains})
    ]
    false_alarms = [fault for fault in faults if fault.severity > 1 and fault not in hits]
    result |= {"hit": bool(hits), "extra": [f"{f.kind}: {f.message}" for f in false_alarms]}
    if kind not in LEAKS:
        return result
    key = name, seed, table.domains, kind == "leaking missing cells"
    if key not in SCORES_WITHOUT:
        SCORES_WITHOUT[key] = rest_score(table)
    return result | {"rest": SCORES_WITHOUT[key]}


def report(results: list[dict[str, Any]], path: Path, note: str = "") -> None:
    """Write the tables."""
    planted_results = [r for r in results if r["kind"] != "clean"]
    kinds = [k for k in (*TUNED_KINDS, *TEST_KINDS) if any(r["kind"] == k for r in planted_results)]

    def share(rows: list[dict[str, Any]]) -> str:
        return f"{100 * np.mean([r['hit'] for r in rows]):.0f} % ({len(rows)})" if rows else "–"

    def counted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Leaks that can be distinguished from good columns, and all other faults."""
        return [r for r in rows if not r.get("rest", 0.0) > 0.85]

    strong_results = [r for r in counted(planted_results) if r["strength"] == 2]
    strong_leaks, other_faults = (
        [r for r in strong_results if (r["kind"] in LEAKS) == is_leak] for is_leak in (True, False)
    )
    clean_results = [r for r in results if r["kind"] == "clean"]
    real_alarms = np.mean([r["alarms"] for r in clean_results if r["set"] != "simulated"])
    lines = [
        "# Which problems in a table are detected, and how many alarms are false?",
        "",
        f"{share(strong_leaks)} of strong leaks and {share(other_faults)} of other strong faults "
        f"are detected (number of tables in brackets), with {real_alarms:.2f} false alarms per "
        "clean table of real data.",
        "",
        "Written by `benchmarks/planted_faults.py`.",
        "",
        f"Tables of up to {DOMAINS} domains and {ROWS:,} rows are drawn several times from each "
        "data set, and one fault is planted in each. The table shows the share of detected "
        "faults, with the number of tables in brackets. A fault counts as detected if its kind, "
        "its column and one of its domains are reported. Leaks are counted only if the score "
        "within domains, without the column, is at most 0.85. Thresholds were chosen on the "
        "*tuned* sets and kinds, and on simulated tables with other seeds. Unmodified tables of "
        "all development sets and of kc_house were also used for this, so only the other "
        "confirmation sets provide new clean tables.",
        "",
        *[note, ""][: 2 * bool(note)],
        "| kind | half | weak | medium | strong |",
        "|---|---|---|---|---|",
    ]
    for kind in kinds:
        for half, sets in (("tuned", TUNED_SETS), ("test", TEST_SETS)):
            rows = counted([r for r in planted_results if r["kind"] == kind and r["set"] in sets])
            if rows:
                cells = [share([r for r in rows if r["strength"] == s]) for s in range(3)]
                lines.append(f"| {kind} | {half} sets | {' | '.join(cells)} |")
    lines += ["", *(f"- {k}: {(TUNED_KINDS | TEST_KINDS)[k][0].__doc__}" for k in kinds)]
    for faults, rows in (("strong leaks", strong_leaks), ("other strong faults", other_faults)):
        test_rows = [r for r in rows if r["kind"] in TEST_KINDS and r["set"] in TEST_SETS]
        lines += ["", f"**Detected, all {faults}: {share(rows)}.** Test half: {share(test_rows)}."]
    n_extra = np.mean([len(r["extra"]) for r in planted_results])
    lines += ["", f"False alarms per table with a planted fault: {n_extra:.2f}."]
    lines += ["", "## Clean tables", ""]
    lines += [
        "| set | half | tables | alarms per table | remarks per table |",
        "|---|---|---|---|---|",
    ]
    halves = {"tuned": TUNED_SETS, "test": TEST_SETS, "confirmation": CLEAN_SETS}
    for half, names in {**halves, "simulated": ["simulated"]}.items():
        for name in names:
            rows = [r for r in clean_results if r["set"] == name]
            if rows:
                alarms, remarks = (np.mean([r[w] for r in rows]) for w in ("alarms", "remarks"))
                lines.append(f"| {name} | {half} | {len(rows)} | {alarms:.2f} | {remarks:.2f} |")
    lines += ["", f"**Alarms per clean table of real data: {real_alarms:.2f}.**", ""]
    reported_kinds = {
        text.split(": ")[0] + f" ({r['set']})" for r in clean_results for text in r["texts"]
    }
    lines.append(f"Alarms and remarks on clean tables: {', '.join(sorted(reported_kinds))}.")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def main() -> None:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=("tuned", "test", "all"), default="all")
    parser.add_argument("--sets", nargs="+", help="only these data sets")
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "PLANTED_FAULTS.md")
    parser.add_argument("--note", default="", help="note on the versions, for the report")
    parser.add_argument(
        "--join",
        type=Path,
        nargs="+",
        help="result files of both halves; only the report is written",
    )
    arguments = parser.parse_args()
    if arguments.join:
        report(
            [r for path in arguments.join for r in json.loads(path.read_text("utf-8"))],
            arguments.out,
            arguments.note,
        )
        return
    sets, kinds, clean = dict(TUNED_SETS), dict(TUNED_KINDS), dict(TUNED_SETS)
    if arguments.half == "all":
        sets, kinds = sets | TEST_SETS, kinds | TEST_KINDS
        clean = sets | CLEAN_SETS
    elif arguments.half == "test":
        sets, kinds, clean = TEST_SETS, TEST_KINDS, TEST_SETS | CLEAN_SETS
    if arguments.sets:
        sets, clean = ({k: v for k, v in s.items() if k in arguments.sets} for s in (sets, clean))
    for name in list(clean):
        try:
            drawn(name, 0)
        except (FileNotFoundError, ImportError):
            print(f"{name} is not available on this machine")
            del clean[name]
    tasks = [(s, "clean", 0, seed) for s in clean for seed in range(arguments.draws)]
    tasks += [("simulated", "clean", 0, seed) for seed in range(20 * arguments.draws)]
    tasks += [
        (s, k, strength, seed)
        for s in sets
        for seed in range(arguments.draws)
        for k in kinds
        for strength in range(3)
    ]
    results = Parallel(arguments.jobs, verbose=1)(delayed(run_job)(*task) for task in tasks)
    arguments.out.with_suffix(".json").write_text(json.dumps(results), encoding="utf-8")
    report(results, arguments.out, arguments.note)


if __name__ == "__main__":
    main()
