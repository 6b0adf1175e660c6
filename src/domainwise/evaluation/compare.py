"""Comparisons: of a model with a constant, and of two evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from domainwise.calibration.quantiles import calibrated
from domainwise.evaluation.evaluate import compare_methods
from domainwise.evaluation.folder import read_evaluation
from domainwise.evaluation.problem import make_problem
from domainwise.evaluation.results import MethodResult, Results, grouped, plain, resampled
from domainwise.models.registry import METHODS, TRIVIAL, Method, find_method
from domainwise.models.table_model import table_setting
from domainwise.scoring.measures import Measure, choose_measure
from domainwise.scoring.statistics import (
    BOOTSTRAP,
    TAIL,
    compare,
    expected_range,
    expected_score,
    p_text,
    widened,
)
from domainwise.tables.errors import Argument, TableError
from domainwise.tables.schema import Table


@dataclass(frozen=True)
class Difference:
    """Second minus first, as scores are shown: of errors a negative one is better.

    ``mean``, and each of ``per_domain``, has scores ``first`` and ``second``, their ``difference``,
    and ``low`` and ``high``, the ends of its 95 % interval: by drawing domains, or rows of one.
    """

    method: str
    mean: dict[str, float]
    p_value: float | None  #: Wilcoxon's signed-rank test over domains
    words: str
    per_domain: list[dict[str, Any]]  #: what became worst first


@dataclass(frozen=True)
class Comparison:
    """What two evaluations have in common, and how they differ."""

    names: tuple[str, str]
    measure: Measure
    margin: float  #: a difference below this has no practical meaning
    notes: list[str]
    pairs: list[Difference]  #: the best methods, then those that both have

    def show(self, value: float, signed: bool = False) -> str:
        """A score, or a difference with its sign, as text."""
        text = self.measure.format(self.measure.sign * value, like=self.pairs[0].mean["first"])
        return f"+{text}" if signed and value >= 0 else text

    def verdict(self) -> str:
        """Describe the difference of the first pair of methods in sentences."""
        pair = self.pairs[0]
        first, second, difference, ends = self._cells(pair.mean)
        return (
            f"{self.names[1]} against {self.names[0]}, {pair.method}: {pair.words}. The mean "
            f"{self.measure.label} over {len(pair.per_domain)} domains changes from {first} to "
            f"{second}, a difference of {difference} (95 %: {ends})."
        )

    def legend(self) -> str:
        """What the columns are."""
        return (
            f"Score: {self.measure.label}, {self.measure.direction}, on the domains in both "
            f"evaluations. Differences: {self.names[1]} minus {self.names[0]}, with 95 % bootstrap "
            "intervals: domains are resampled, and for one domain its rows. A difference below "
            f"{self.show(self.margin)} has no practical meaning. p: Wilcoxon signed-rank test over "
            "domains, approximate."
        )

    def tables(self) -> tuple[list[list[str]], list[list[str]]]:
        """A table of methods and one of domains for the first pair, headings first."""
        columns = [*self.names, "difference", "95 %"]
        methods = [["method", *columns, "p", "result"]]
        methods += [
            [pair.method, *self._cells(pair.mean), p_text(pair.p_value), pair.words]
            for pair in self.pairs
        ]
        rows = [[str(row["domain"]), *self._cells(row)] for row in self.pairs[0].per_domain]
        return methods, [["domain", *columns], *rows]

    def _cells(self, row: dict[str, Any]) -> list[str]:
        difference, low, high = (self.show(row[n], True) for n in ("difference", "low", "high"))
        return [self.show(row["first"]), self.show(row["second"]), difference, f"{low} to {high}"]

    def page(self) -> str:
        """A complete HTML document, in the style of the other pages."""
        from domainwise.plots import DomainScoresDisplay
        from domainwise.report.page import Picture, Templates, drawing, to_svg

        pair, (first, second) = self.pairs[0], self.names
        parts = ((second, "second"), (first, "first"))
        with drawing(9.0, 1.3 + 0.34 * len(pair.per_domain)) as figure:
            DomainScoresDisplay(
                scores={n: {row["domain"]: row[p] for row in pair.per_domain} for n, p in parts},
                label=self.measure.label,
                greater_is_better=self.measure.sign > 0,
            ).plot(figure.subplots())
            alt = f"{self.measure.label} by domain in {first} and in {second}, {pair.method}"
            caption = f"{pair.method}: the domain that is worst in {second} is at the top"
            picture = Picture(to_svg(figure, "both", alt), alt, caption, wide=True)
        title, styles = f"{second} compared with {first}", ["style.css", "evaluate.css"]
        made = Templates("domainwise.evaluation")
        content = {"title": title, "comparison": self, "picture": picture}
        return made.render("compare.html.j2", styles=styles, **content)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and strings; None where something is not defined."""
        content = {"folders": self.names, "measure": self.measure.name, "margin": self.margin}
        content |= {"greater_is_better": self.measure.sign > 0, "verdict": self.verdict()}
        pairs = [asdict(pair) for pair in self.pairs]
        return dict(plain({**content, "notes": self.notes, "pairs": pairs}))


def compare_evaluations(first: Path, second: Path, method: str | None = None) -> Comparison:
    """Compare the folders of two evaluations: their best methods, and each that both have.

    A ``method`` that is named has to be in both, and is compared alone. Refused are other targets,
    domains and measures; notes list what to be careful about.
    """
    (a, stored_a), (b, stored_b) = (read_evaluation(path, every=True) for path in (first, second))
    _refuse(stored_a, stored_b, first, second)
    same = (each for each in (b, *b.others) if each.measure.name == a.measure.name)
    other = next(same, None)
    if other is None:
        raise TableError(
            f"{first} has {a.measure.label}, {second} has {b.measure.label}: evaluate "
            f"{second} again with ",
            Argument("metric", a.measure.name),
            ", which is computed from the predictions there",
        )
    other.records = b.records
    shared = [domain for domain in a.domains if domain in other.domains]
    if not shared:
        raise ValueError(
            f"{first} and {second} have no domain in common. Compare evaluations that do"
        )
    both = [(r, s) for r in a.results if (s := other.find(r.key)) is not None]
    pairs = [(a.best, other.best)]
    pairs += [(r, s) for r, s in both if r is not a.best or s is not other.best]
    if method is not None:
        named = a.find(method)
        pairs = [(r, s) for r, s in both if r is named]
        if not pairs:
            common = ", ".join(r.key for r, _ in both) or "none"
            raise ValueError(f"method={method!r} is not in both evaluations; choose from: {common}")
    differences = [_difference(a, other, shared, *pair) for pair in pairs]
    alike = first.name == second.name
    names = (str(first), str(second)) if alike else (first.name, second.name)
    notes = _notes(a, other, [stored_a, stored_b], names, shared)
    return Comparison(names, a.measure, a.margin, notes, differences)


def _difference(
    a: Results, b: Results, shared: Sequence[Any], first: MethodResult, second: MethodResult
) -> Difference:
    """How a method of one evaluation differs from one of another."""
    common = [d for d in shared if d in first.known and d in second.known]
    if not common:
        raise ValueError(
            f"{first.key} and {second.key} have no scored domain in common. Choose other methods"
        )
    names, sign = a.facts["classes"], a.measure.sign
    by_domain = [grouped(a.records.get(first.key, ())), grouped(b.records.get(second.key, ()))]
    classes = None if names is None else np.asarray(names)
    known = np.zeros(2) if classes is None else classes
    measure = choose_measure(a.measure.name, known, names is not None, a.facts["positive"])
    rows = []
    for place, domain in enumerate(common):
        one, other = (sign * result.known[domain] for result in (first, second))
        ends: Sequence[float] = (np.nan, np.nan)
        if all(domain in each for each in by_domain):
            records = [each[domain] for each in by_domain]
            # Rows are drawn alike where they are the same, and apart elsewhere.
            seeds = [place, place if _rows(records[0]) == _rows(records[1]) else place + 10**6]
            draws = [resampled(measure, classes, *of) for of in zip(records, seeds, strict=True)]
            ends = sorted(sign * np.nanquantile(draws[1] - draws[0], (TAIL, 1 - TAIL)))
        rows.append({"domain": plain(domain), **_row(one, other, ends)})
    ones, others, differences = (
        np.array([row[name] for row in rows]) for name in ("first", "second", "difference")
    )
    draws = np.random.default_rng(0).choice(differences, (BOOTSTRAP, len(rows))).mean(axis=1)
    ends = widened(float(differences.mean()), draws, len(rows), np.inf)
    mean = _row(ones.mean(), others.mean(), ends)
    p_value = compare(dict(enumerate(others)), dict(enumerate(ones))).p_value
    words = _words(mean["difference"], sign, a.margin, ends)
    rows.sort(key=lambda row: sign * row["difference"])
    same = first.label == second.label
    label = first.label if same else f"{first.label} → {second.label}"
    return Difference(label, mean, p_value, words, rows)


def _row(first: float, second: float, ends: Sequence[float]) -> dict[str, float]:
    values = (first, second, second - first, *ends)
    names = ("first", "second", "difference", "low", "high")
    return {name: float(value) for name, value in zip(names, values, strict=True)}


def _words(difference: float, sign: int, margin: float, ends: Sequence[float]) -> str:
    better = "better" if sign * difference > 0 else "worse"
    if abs(difference) < margin:
        certain = np.isfinite(ends).all() and max(map(abs, ends)) < margin
        return "no practical difference" + ("" if certain else ", but the interval is wide")
    if not np.isfinite(ends).all():
        return f"{better}, on too few domains for an interval"
    return better if ends[0] > 0 or ends[1] < 0 else f"{better}, but not significantly"


def _rows(records: list[Any]) -> list[Any]:
    return [record["row"].tolist() for record in records]


def _asked(stored: dict[str, Any], name: str) -> Any:
    return stored.get("table", {}).get("asked", {}).get(name)


def _refuse(a: dict[str, Any], b: dict[str, Any], first: Path, second: Path) -> None:
    """Refuse evaluations of different targets, domains or tasks."""
    questions = {name: (_asked(a, name), _asked(b, name)) for name in ("target", "domain")}
    for name in ("task", "positive", "classes"):
        questions[name] = a["facts"][name], b["facts"][name]
    for name, (one, other) in questions.items():
        if one != other and None not in (one, other):
            raise ValueError(
                f"{first} and {second} cannot be compared: the {name} is {one!s} in one and "
                f"{other!s} in the other"
            )


def _notes(
    a: Results, b: Results, stored: list[Any], names: Sequence[str], shared: list[Any]
) -> list[str]:
    """What to be careful about: other tables, rows, folds, columns and domains."""
    notes = []
    tables = [each.get("table", {}).get("sha256") for each in stored]
    (rows, folds), (other_rows, other_folds) = (_laid_out(results, shared) for results in (a, b))
    if None not in tables and tables[0] != tables[1]:
        notes.append("The tables are different files (SHA-256), so the rows differ.")
    elif rows != other_rows:
        notes.append("Different rows were evaluated, so the rows of a domain are not paired.")
    if folds != other_folds:
        notes.append("Domains were held out in different groups, so the training domains differ.")
    if not notes:
        same = "Same table, rows and folds." if rows else "The folders have no predictions."
        notes.append(same)
    for name in ("features", "drop"):
        one, other = (", ".join(_asked(each, name) or ()) or "not given" for each in stored)
        if one != other:
            notes.append(f"{name}: {one} in {names[0]}, {other} in {names[1]}.")
    for name, results in zip(names, (a, b), strict=True):
        if alone := [str(domain) for domain in results.domains if domain not in shared]:
            notes.append(f"Only in {name}, and not compared: {', '.join(alone)}.")
    return notes


def _laid_out(results: Results, shared: list[Any]) -> tuple[dict[Any, Any], set[Any]]:
    """Rows and their targets by domain, and the groups of domains that were held out together."""
    rows: dict[Any, Any] = {}
    folds: dict[int, set[Any]] = {}
    for record in next(iter(results.records.values()), ()):
        folds.setdefault(record["split"], set()).add(record["domain"])
        if record["domain"] in shared:
            rows[record["domain"]] = [record[name].tolist() for name in ("row", "target")]
    return rows, {frozenset(domains) for domains in folds.values()}


@dataclass(frozen=True)
class Check:
    """How a model does on domains it has not seen, beside a constant prediction."""

    metric: str
    model: float  #: mean over domains; larger is better (errors are negative)
    constant: float  #: the same of a constant
    worst: float  #: the model's score on the worst domain
    worst_domain: Any
    n_domains: int
    better: bool  #: whether the gain over the constant is more than chance among so many domains
    low: float | None = None  #: of a 95 % interval of ``model`` (bootstrap over domains)
    high: float | None = None
    calibration: dict[str, Any] | None = None  #: for prediction sets
    #: In which the score of one new domain falls with a probability of 90 %.
    range: tuple[float, float] | None = None


def check_table(table: Table, method: str | Method = "auto", **options: Any) -> Check:
    """Score a method, and a constant, on the domains and rows that `evaluate` would leave out.

    For options see :func:`~domainwise.models.table_model.table_setting`.
    """
    setting = table_setting(table, **options)
    chosen = find_method(method, len(table.y))
    problem = make_problem(
        table.X,
        table.y,
        table.sample_domain,
        task=table.schema.task,
        schema=table.schema,
        scoring=options.get("scoring"),
        inner_scoring=setting.scoring,
        max_rows="auto",
        random_state=setting.seed,
        pos_label=setting.pos_label,
    )
    compare = partial(compare_methods, inside=False, n_jobs=setting.n_jobs, progress=False)
    decided = {"class_weight": setting.class_weight, "predictor": setting.predictor}
    constant, model = (
        compare(replace(problem, overrides=overrides), [replace(one, context=False)])
        for one, overrides in ((METHODS[TRIVIAL], {}), (chosen, decided))
    )
    calibration = calibrated(model.records[model.best_], problem.classes)
    known = model.best.known, constant.best.known
    return compare_with_constant(problem.measure.name, *known, calibration)


def compare_with_constant(
    metric: str,
    model: Mapping[Any, float],
    constant: Mapping[Any, float],
    calibration: dict[str, Any] | None = None,
) -> Check:
    """Sum up scores of a model and of a constant by domain; larger ones are better."""
    gain = np.array([score - constant[name] for name, score in model.items()])
    # One-sided at 10 %: of models that know nothing, nine in ten are called what they are.
    error = gain.std(ddof=1) / np.sqrt(len(gain)) * stdtrit(len(gain) - 1, 0.9)
    worst = min(model, key=lambda name: model[name])
    better = bool(gain.mean() > max(error, 1e-12))
    mean, other = (float(np.mean(list(scores.values()))) for scores in (model, constant))
    low, high = plain(expected_score(list(model.values()), 0)[1:])
    one = expected_range(list(model.values()), metric)
    return Check(
        metric, mean, other, model[worst], worst, len(gain), better, low, high, calibration, one
    )
