"""Comparison of a model with a constant prediction, and of two evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

from domainwise.calibration.quantiles import calibrate_sets
from domainwise.evaluation.evaluate import compare_methods
from domainwise.evaluation.folder import read_evaluation
from domainwise.evaluation.problem import make_problem
from domainwise.evaluation.results import MethodResult, Results, grouped, plain, resampled
from domainwise.models.registry import METHODS, TRIVIAL, Method, find_method
from domainwise.models.table_model import table_setting
from domainwise.scoring.measures import Measure, choose_measure
from domainwise.scoring.statistics import (
    DOMAIN_SAMPLES,
    TAIL,
    compare,
    expected_range,
    expected_score,
    p_text,
    widened_interval,
)
from domainwise.tables.errors import Argument, TableError
from domainwise.tables.schema import Table


@dataclass(frozen=True)
class Difference:
    """Score in the second evaluation minus score in the first; for errors, negative is better.

    ``mean`` and the entries of ``per_domain`` contain ``first``, ``second``, ``difference``, and
    ``low`` and ``high``: a 95 % bootstrap interval over domains, or over the rows of a domain.
    """

    method: str
    mean: dict[str, float]
    p_value: float | None  #: Wilcoxon's signed-rank test over domains
    words: str  #: the result, such as "better, but not significantly"
    per_domain: list[dict[str, Any]]  #: the largest deterioration first


@dataclass(frozen=True)
class Comparison:
    """Comparison of two evaluations on the domains that are in both."""

    names: tuple[str, str]
    measure: Measure
    margin: float  #: smallest difference that matters in practice
    notes: list[str]
    pairs: list[Difference]  #: the two best methods, then each method that is in both evaluations

    def show(self, value: float, signed: bool = False) -> str:
        """A score, or a difference with its sign, as text."""
        text = self.measure.format(self.measure.sign * value, scale=self.pairs[0].mean["first"])
        return f"+{text}" if signed and value >= 0 else text

    def verdict(self) -> str:
        """Describe the difference between the first pair of methods in sentences."""
        pair = self.pairs[0]
        first, second, difference, ends = self._cells(pair.mean)
        return (
            f"{self.names[1]} compared with {self.names[0]} ({pair.method}): {pair.words}. The "
            f"mean {self.measure.label} over {len(pair.per_domain)} domains changes from {first} "
            f"to {second}, by {difference} (95 % interval: {ends})."
        )

    def legend(self) -> str:
        """Explain the columns of the tables."""
        return (
            f"Scores are {self.measure.label} ({self.measure.direction}) on the domains in both "
            f"evaluations. The difference is {self.names[1]} minus {self.names[0]}. The column "
            "95 % contains a bootstrap interval for it, from resampled domains or, for a single "
            f"domain, from resampled rows. Differences below {self.show(self.margin)} do not "
            "matter in practice. p is approximate (Wilcoxon's signed-rank test over domains)."
        )

    def tables(self) -> tuple[list[list[str]], list[list[str]]]:
        """Return a table of all pairs, and one of domains for the first pair, headings first."""
        columns = [*self.names, "difference", "95 %"]
        methods = [["method", *columns, "p", "result"]]
        methods += [
            [pair.method, *self._cells(pair.mean), p_text(pair.p_value), pair.words]
            for pair in self.pairs
        ]
        rows = [[str(row["domain"]), *self._cells(row)] for row in self.pairs[0].per_domain]
        return methods, [["domain", *columns], *rows]

    def _cells(self, row: dict[str, Any]) -> list[str]:
        """Both scores, their difference and its interval, as text."""
        difference, low, high = (self.show(row[n], True) for n in ("difference", "low", "high"))
        return [self.show(row["first"]), self.show(row["second"]), difference, f"{low} to {high}"]

    def page(self) -> str:
        """The comparison as an HTML document, in the style of the other reports."""
        from domainwise.plots import DomainScoresDisplay
        from domainwise.report.page import Picture, drawing, render_page, to_svg

        pair, (first, second) = self.pairs[0], self.names
        scores = {
            name: {row["domain"]: row[key] for row in pair.per_domain}
            for name, key in ((second, "second"), (first, "first"))
        }
        greater, label = self.measure.sign > 0, self.measure.label
        with drawing(9.0, 1.3 + 0.34 * len(pair.per_domain)) as figure:
            display = DomainScoresDisplay(scores=scores, label=label, greater_is_better=greater)
            display.plot(figure.subplots())
            alt = f"{label} by domain in {first} and in {second}, {pair.method}"
            caption = f"{pair.method}: the domain that is worst in {second} is at the top"
            picture = Picture(to_svg(figure, "both", alt), alt, caption, wide=True)
        title, styles = f"{second} compared with {first}", ["style.css", "evaluate.css"]
        content = {"title": title, "comparison": self, "picture": picture}
        return render_page("domainwise.evaluation", "compare.html.j2", styles=styles, **content)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON values, with None for undefined numbers."""
        content = {"folders": self.names, "measure": self.measure.name, "margin": self.margin}
        content |= {"greater_is_better": self.measure.sign > 0, "verdict": self.verdict()}
        pairs = [asdict(pair) for pair in self.pairs]
        return dict(plain({**content, "notes": self.notes, "pairs": pairs}))


def compare_evaluations(first: Path, second: Path, method: str | None = None) -> Comparison:
    """Compare the evaluations in two folders: the best methods, and all methods that are in both.

    If ``method`` is passed, it must be in both, and no other method is compared. An error is raised
    if targets or domain columns differ, or if there is no common measure; other differences are
    described in the notes.
    """
    (a, stored_a), (b, stored_b) = (read_evaluation(p, all_methods=True) for p in (first, second))
    tables = [stored.get("table", {}) for stored in (stored_a, stored_b)]
    settings = [{**t.get("asked", {}), **e.facts} for t, e in zip(tables, (a, b), strict=True)]
    arguments = {"target": "target", "domain": "domain column", "task": "task"}
    for key, name in {**arguments, "positive": "positive class", "classes": "classes"}.items():
        a_value, b_value = (setting.get(key) for setting in settings)
        if a_value != b_value and None not in (a_value, b_value):
            verb = "are" if key == "classes" else "is"
            raise ValueError(
                f"{first} and {second} cannot be compared: the {name} {verb} {a_value!s} in the "
                f"first and {b_value!s} in the second. Evaluate both with the same {name}"
            )
    candidates = (results for results in (b, *b.others) if results.measure.name == a.measure.name)
    matching_results = next(candidates, None)
    if matching_results is None:
        raise TableError(
            f"{first} reports {a.measure.label}, but {second} reports {b.measure.label}. Evaluate "
            f"{second} again with ",
            Argument("metric", a.measure.name),
            "; the predictions in the folder are used, and nothing is fitted again",
        )
    matching_results.records, b = b.records, matching_results
    shared_domains = [domain for domain in a.domains if domain in b.domains]
    if not shared_domains:
        raise ValueError(
            f"{first} and {second} have no domain in common. Compare evaluations of the same "
            "domains"
        )
    common_methods = [(r, s) for r in a.results if (s := b.find(r.key)) is not None]
    pairs = [(a.best, b.best)]
    pairs += [(r, s) for r, s in common_methods if r is not a.best or s is not b.best]
    if method is not None:
        result = a.find(method)
        pairs = [(r, s) for r, s in common_methods if r is result]
        if not pairs:
            keys = ", ".join(r.key for r, _ in common_methods)
            advice = f"Use one of: {keys}" if keys else "Evaluate the same method in both"
            raise ValueError(f"method={method!r} is not in both evaluations. {advice}")
    differences = [_difference(a, b, shared_domains, *pair) for pair in pairs]
    same_name = first.name == second.name
    names = (str(first), str(second)) if same_name else (first.name, second.name)
    digests = [table.get("sha256") for table in tables]
    files_differ = None not in digests and digests[0] != digests[1]
    notes = _notes((a, b), names, shared_domains, settings, files_differ)
    return Comparison(names, a.measure, a.margin, notes, differences)


def _difference(
    a: Results, b: Results, shared: Sequence[Any], first: MethodResult, second: MethodResult
) -> Difference:
    """Compare a method in one evaluation with a method in the other."""
    common_domains = [d for d in shared if d in first.known and d in second.known]
    if not common_domains:
        raise ValueError(
            f"no domain has a score for {first.key} in the first evaluation and for {second.key} "
            "in the second. Compare another method"
        )
    classes, sign, positive = a.classes, a.measure.sign, a.facts["positive"]
    y = np.zeros(2) if classes is None else classes
    measure = choose_measure(a.measure.name, y, classes is not None, positive)
    records = [grouped(e.records.get(m.key, ())) for e, m in ((a, first), (b, second))]
    rows = []
    for i, domain in enumerate(common_domains):
        ends: Sequence[float] = (np.nan, np.nan)
        if all(domain in by_domain for by_domain in records):
            before, after = (by_domain[domain] for by_domain in records)
            rows_before, rows_after = ([r["row"].tolist() for r in rs] for rs in (before, after))
            # Draws are paired if the rows are the same, and independent otherwise.
            seed = i if rows_before == rows_after else i + 10**6
            draws = resampled(measure, classes, after, seed)
            draws -= resampled(measure, classes, before, i)
            ends = sorted(sign * np.nanquantile(draws, (TAIL, 1 - TAIL)))
        scores = (sign * first.known[domain], sign * second.known[domain])
        rows.append({"domain": plain(domain), **_row(*scores, ends)})
    scores_a, scores_b, differences = (
        np.array([row[name] for row in rows]) for name in ("first", "second", "difference")
    )
    draws = np.random.default_rng(0).choice(differences, (DOMAIN_SAMPLES, len(rows))).mean(axis=1)
    ends = widened_interval(float(differences.mean()), draws, len(rows), np.inf)  # not bounded
    mean = _row(scores_a.mean(), scores_b.mean(), ends)
    p_value = compare(dict(enumerate(scores_b)), dict(enumerate(scores_a))).p_value
    words = _describe(mean["difference"], sign, a.margin, ends)
    rows.sort(key=lambda row: sign * row["difference"])
    label = " → ".join(dict.fromkeys((first.label, second.label)))
    return Difference(label, mean, p_value, words, rows)


def _row(first: float, second: float, ends: Sequence[float]) -> dict[str, float]:
    """A dictionary of two scores, their difference, and the ends of its interval."""
    values = (first, second, second - first, *ends)
    names = ("first", "second", "difference", "low", "high")
    return {name: float(value) for name, value in zip(names, values, strict=True)}


def _describe(difference: float, sign: int, margin: float, ends: Sequence[float]) -> str:
    """Describe a difference between means."""
    better = "better" if sign * difference > 0 else "worse"
    if abs(difference) < margin:
        is_narrow = np.isfinite(ends).all() and max(map(abs, ends)) < margin
        return "no practical difference" + ("" if is_narrow else ", but the interval is wide")
    if not np.isfinite(ends).all():
        return f"{better}, but there are too few domains for an interval"
    return better if ends[0] > 0 or ends[1] < 0 else f"{better}, but not significantly"


def _notes(
    evaluations: Sequence[Results],
    names: Sequence[str],
    shared: Sequence[Any],
    settings: Sequence[Mapping[str, Any]],
    files_differ: bool,
) -> list[str]:
    """Sentences about differences in tables, rows, folds, columns and domains."""
    (rows, folds), (other_rows, other_folds) = (_layout(e, shared) for e in evaluations)
    notes = []
    if files_differ:
        notes.append("The tables are different files (SHA-256 digests differ), so rows may differ.")
    elif rows and other_rows and rows != other_rows:
        notes.append("Different rows were evaluated, so scores on a domain are not paired by row.")
    if not (rows and other_rows):
        notes.append("Predictions are missing from a folder, so rows and folds were not compared.")
    elif folds != other_folds:
        notes.append("Domains were held out in different groups, so the training domains differ.")
    notes = notes or ["The table, rows and folds are the same."]
    for name in ("features", "drop"):
        values = [", ".join(setting.get(name) or ()) or "not set" for setting in settings]
        if values[0] != values[1]:
            values = [f"{value} in {folder}" for value, folder in zip(values, names, strict=True)]
            notes.append(f"The argument {name} differs: {'; '.join(values)}.")
    for name, evaluation in zip(names, evaluations, strict=True):
        if unshared_names := [str(domain) for domain in evaluation.domains if domain not in shared]:
            notes.append(f"Domains only in {name} are not compared: {', '.join(unshared_names)}.")
    return notes


def _layout(evaluation: Results, shared: Sequence[Any]) -> tuple[dict[Any, Any], set[Any]]:
    """Rows and targets by domain, and the groups of domains that were held out together."""
    rows: dict[Any, Any] = {}
    folds: dict[int, set[Any]] = {}
    for record in next(iter(evaluation.records.values()), ()):
        folds.setdefault(record["split"], set()).add(record["domain"])
        if record["domain"] in shared:
            rows[record["domain"]] = [record[name].tolist() for name in ("row", "target")]
    return rows, {frozenset(domains) for domains in folds.values()}


@dataclass(frozen=True)
class Check:
    """Scores of a model on held-out domains, compared with a constant prediction."""

    metric: str
    model: float  #: mean over domains; larger is better (errors are negative)
    constant: float  #: mean score of a constant prediction
    worst: float  #: the model's score on the worst domain
    worst_domain: Any
    n_domains: int
    better: bool  #: whether the mean gain over ``constant`` is significant (one-sided, 10 %)
    low: float | None = None  #: lower end of a 95 % bootstrap interval for ``model``, over domains
    high: float | None = None  #: upper end of this interval
    calibration: dict[str, Any] | None = None  #: calibration of prediction sets
    #: 90 % prediction interval for the score on one new domain.
    range: tuple[float, float] | None = None


def check_table(table: Table, method: str | Method = "auto", **options: Any) -> Check:
    """Score a method and a constant prediction on held-out domains, as ``evaluate`` does.

    ``options`` go to :func:`~domainwise.models.table_model.table_setting`.
    """
    setting = table_setting(table, **options)
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
    run = partial(compare_methods, details=False, n_jobs=setting.n_jobs, progress=False)
    overrides = {"class_weight": setting.class_weight, "predictor": setting.predictor}
    without_context = replace(find_method(method, len(table.y)), context=False)
    constant = run(problem, [METHODS[TRIVIAL]])
    model = run(replace(problem, overrides=overrides), [without_context])
    calibration = calibrate_sets(model.records[model.best_], problem.classes)
    scores = model.best.known, constant.best.known
    return compare_with_constant(problem.measure.name, *scores, calibration)


def compare_with_constant(
    metric: str,
    model: Mapping[Any, float],
    constant: Mapping[Any, float],
    calibration: dict[str, Any] | None = None,
) -> Check:
    """Compare scores of a model and of a constant prediction by domain; larger is better."""
    gain = np.array([score - constant[name] for name, score in model.items()])
    # A one-sided t-test at 10 %: of models that are no better than the constant, one in ten passes.
    min_gain = gain.std(ddof=1) / np.sqrt(len(gain)) * stdtrit(len(gain) - 1, 0.9)
    worst = min(model, key=lambda name: model[name])
    better = bool(gain.mean() > max(min_gain, 1e-12))
    mean, baseline = (float(np.mean(list(scores.values()))) for scores in (model, constant))
    low, high = plain(expected_score(list(model.values()), 0)[1:])
    ends = expected_range(list(model.values()), metric)
    return Check(
        metric, mean, baseline, model[worst], worst, len(gain), better, low, high, calibration, ends
    )
