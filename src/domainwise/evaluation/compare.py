"""Compare two evaluations, and compare a model with a constant prediction."""

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
from domainwise.evaluation.verdict import in_sentence
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
    """Scores in two evaluations, and the second minus the first; for errors, negative is better.

    ``mean`` and each entry of ``per_domain`` contain ``first``, ``second``, ``difference``, ``low``
    and ``high`` (a 95 % bootstrap interval for the difference, over domains or over rows).
    """

    method: str
    mean: dict[str, float]
    p_value: float | None  #: from Wilcoxon's signed-rank test over domains
    words: str  #: the result, such as "better, but not significantly"
    per_domain: list[dict[str, Any]]  #: largest deterioration first


@dataclass(frozen=True)
class Comparison:
    """Comparison of two evaluations on the domains that are in both."""

    names: tuple[str, str]
    measure: Measure
    margin: float  #: smallest difference that matters in practice
    notes: list[str]
    pairs: list[Difference]  #: the best methods of the two evaluations, then each common method
    subject: str  #: the methods of the first pair, for a sentence

    def show(self, score: float, signed: bool = False) -> str:
        """Format a score, or a difference with its sign if ``signed`` is True."""
        text = self.measure.format(self.measure.sign * score, scale=self.pairs[0].mean["first"])
        return f"+{text}" if signed and score >= 0 else text

    def verdict(self) -> str:
        """Describe the difference between the first pair of methods in sentences."""
        pair = self.pairs[0]
        first, second, difference, ends = self._cells(pair.mean)
        return (
            f"{self.names[1]} compared with {self.names[0]} ({self.subject}): {pair.words}. The "
            f"mean {self.measure.label} over {len(pair.per_domain)} domains changes from {first} "
            f"to {second}, by {difference} (95 % confidence interval: {ends})."
        )

    def legend(self) -> str:
        """Explain the columns of the tables."""
        return (
            f"Scores are {self.measure.label} ({self.measure.direction}) on the domains in both "
            f"evaluations. The difference is {self.names[1]} minus {self.names[0]}; 95 % is its "
            "confidence interval, from resampled domains or, for one domain, from resampled rows. "
            f"Differences below {self.show(self.margin)} have no practical importance. p is the "
            "approximate p-value of Wilcoxon's signed-rank test over domains."
        )

    def tables(self) -> tuple[list[list[str]], list[list[str]]]:
        """Return two tables with headings: all pairs of methods, and the first pair by domain."""
        headings = [*self.names, "difference", "95 %"]
        method_rows = [["method", *headings, "p", "result"]]
        method_rows += [
            [pair.method, *self._cells(pair.mean), p_text(pair.p_value), pair.words]
            for pair in self.pairs
        ]
        domain_rows = [[str(row["domain"]), *self._cells(row)] for row in self.pairs[0].per_domain]
        return method_rows, [["domain", *headings], *domain_rows]

    def _cells(self, row: dict[str, Any]) -> list[str]:
        """Both scores, their difference and its interval, as text."""
        difference, low, high = (self.show(row[key], True) for key in ("difference", "low", "high"))
        return [self.show(row["first"]), self.show(row["second"]), difference, f"{low} to {high}"]

    def page(self) -> str:
        """Return the comparison as an HTML page, in the style of the other reports."""
        from domainwise.plots import DomainScoresDisplay
        from domainwise.report.page import Picture, drawing, render_page, to_svg

        pair, (first, second) = self.pairs[0], self.names
        scores = {
            name: {row["domain"]: row[key] for row in pair.per_domain}
            for name, key in ((second, "second"), (first, "first"))
        }
        label = self.measure.label
        with drawing(9.0, 1.3 + 0.34 * len(pair.per_domain)) as figure:
            options: Any = {"label": label, "greater_is_better": self.measure.sign > 0}
            DomainScoresDisplay(scores=scores, **options).plot(figure.subplots())
            alt = f"{label} by domain in {first} and in {second} ({self.subject})"
            caption = f"Each row is a domain; the worst domain in {second} is at the top"
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
    """Compare the evaluations in two folders: their best methods, and each method that is in both.

    If ``method`` is passed, it must be in both, and no other method is compared. An error is raised
    if the target, domain column, task or classes differ, or if there is no common measure. Other
    differences are described in the notes.
    """
    a, a_content = read_evaluation(first, all_methods=True)
    b, b_content = read_evaluation(second, all_methods=True)
    a_table, b_table = (content.get("table", {}) for content in (a_content, b_content))
    settings = [{**a_table.get("asked", {}), **a.facts}, {**b_table.get("asked", {}), **b.facts}]
    label_by_key = {"domain": "domain column", "positive": "positive class"}
    for key in ("target", "domain", "task", "positive", "classes"):
        a_value, b_value = (setting.get(key) for setting in settings)
        if a_value != b_value and None not in (a_value, b_value):
            label, verb = label_by_key.get(key, key), "are" if key == "classes" else "is"
            raise ValueError(
                f"{first} and {second} cannot be compared: the {label} {verb} {a_value!s} in the "
                f"first and {b_value!s} in the second. Evaluate both with the same {label}"
            )
    results_by_measure = {results.measure.name: results for results in (*b.others, b)}
    matching_results = results_by_measure.get(a.measure.name)
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
        advice = "Compare evaluations of the same domains"
        raise ValueError(f"{first} and {second} have no domain in common. {advice}")
    common_pairs = [(r, s) for r in a.results if (s := b.find(r.key)) is not None]
    pairs = [(a.best, b.best)]
    pairs += [(r, s) for r, s in common_pairs if r is not a.best or s is not b.best]
    if method is not None:
        requested_result = a.find(method)
        pairs = [(r, s) for r, s in common_pairs if r is requested_result]
        if not pairs:
            keys_text = ", ".join(r.key for r, _ in common_pairs)
            advice = f"Use one of: {keys_text}" if keys_text else "Evaluate the same method in both"
            raise ValueError(f"method={method!r} is not in both evaluations. {advice}")
    differences = [_compare_pair(a, b, shared_domains, *pair) for pair in pairs]
    has_same_name = first.name == second.name
    folder_names = (str(first), str(second)) if has_same_name else (first.name, second.name)
    digests = (a_table.get("sha256"), b_table.get("sha256"))
    files_differ = None not in digests and digests[0] != digests[1]
    notes = _notes((a, b), folder_names, shared_domains, settings, files_differ)
    subject = " instead of ".join(dict.fromkeys(map(in_sentence, reversed(pairs[0]))))
    return Comparison(folder_names, a.measure, a.margin, notes, differences, subject)


def _compare_pair(
    a: Results, b: Results, shared_domains: Sequence[Any], first: MethodResult, second: MethodResult
) -> Difference:
    """Compare a method in the first evaluation with a method in the second."""
    scored_domains = [d for d in shared_domains if d in first.known and d in second.known]
    if not scored_domains:
        raise ValueError(
            f"no domain has a score for {first.key} in the first evaluation and for {second.key} "
            "in the second. Compare another method"
        )
    classes, sign, positive = a.classes, a.measure.sign, a.facts["positive"]
    example_y = np.zeros(2) if classes is None else classes
    measure = choose_measure(a.measure.name, example_y, classes is not None, positive)
    first_records = grouped(a.records.get(first.key, ()))
    second_records = grouped(b.records.get(second.key, ()))
    rows = []
    for i, domain in enumerate(scored_domains):
        ends: Sequence[float] = (np.nan, np.nan)
        if domain in first_records and domain in second_records:
            before, after = first_records[domain], second_records[domain]
            # Bootstrap samples are paired if the rows are the same, and independent otherwise.
            is_paired = [r["row"].tolist() for r in before] == [r["row"].tolist() for r in after]
            score_changes = resampled(measure, classes, after, i if is_paired else i + 10**6)
            score_changes -= resampled(measure, classes, before, i)
            ends = sorted(sign * np.nanquantile(score_changes, (TAIL, 1 - TAIL)))
        domain_scores = (sign * first.known[domain], sign * second.known[domain])
        rows.append({"domain": plain(domain), **_row(*domain_scores, ends)})
    first_scores, second_scores, differences = (
        np.array([row[key] for row in rows]) for key in ("first", "second", "difference")
    )
    samples = np.random.default_rng(0).choice(differences, (DOMAIN_SAMPLES, len(rows)))
    ends = widened_interval(float(differences.mean()), samples.mean(axis=1), len(rows), np.inf)
    mean_row = _row(first_scores.mean(), second_scores.mean(), ends)
    p_value = compare(dict(enumerate(second_scores)), dict(enumerate(first_scores))).p_value
    description = _describe(mean_row["difference"], sign, a.margin, ends)
    rows.sort(key=lambda row: sign * row["difference"])
    method_label = " → ".join(dict.fromkeys((first.label, second.label)))
    return Difference(method_label, mean_row, p_value, description, rows)


def _row(first: float, second: float, ends: Sequence[float]) -> dict[str, float]:
    """Two scores, their difference, and the ends of its interval, by name."""
    values = (first, second, second - first, *ends)
    keys = ("first", "second", "difference", "low", "high")
    return {key: float(value) for key, value in zip(keys, values, strict=True)}


def _describe(difference: float, sign: int, margin: float, ends: Sequence[float]) -> str:
    """Describe a difference between means, such as "better, but not significantly"."""
    direction = "better" if sign * difference > 0 else "worse"
    if abs(difference) < margin:
        is_narrow = np.isfinite(ends).all() and max(map(abs, ends)) < margin
        return "no practical difference" + ("" if is_narrow else ", but the interval is wide")
    if not np.isfinite(ends).all():
        return f"{direction}, but there are too few domains for an interval"
    return direction if ends[0] > 0 or ends[1] < 0 else f"{direction}, but not significantly"


def _notes(
    evaluations: Sequence[Results],
    folder_names: Sequence[str],
    shared_domains: Sequence[Any],
    settings: Sequence[Mapping[str, Any]],
    files_differ: bool,
) -> list[str]:
    """Sentences about differences in tables, rows, folds, columns and domains."""
    first_rows, first_groups = _layout(evaluations[0], shared_domains)
    second_rows, second_groups = _layout(evaluations[1], shared_domains)
    notes = []
    if files_differ:
        notes.append("The table files have different contents, so rows may differ.")
    elif first_rows and second_rows and first_rows != second_rows:
        notes.append("Different rows were scored, so differences on a domain are less precise.")
    if not (first_rows and second_rows):
        notes.append("A folder lacks predictions, so rows and held-out groups were not compared.")
    elif first_groups != second_groups:
        notes.append("Domains were held out in different groups, so the training domains differ.")
    notes = notes or ["The table, the rows and the groups of held-out domains are the same."]
    for option in ("features", "drop"):
        texts = [", ".join(setting.get(option) or ()) or "not set" for setting in settings]
        if texts[0] != texts[1]:
            texts = [f"{text} in {name}" for text, name in zip(texts, folder_names, strict=True)]
            notes.append(f"The option --{option} differs: {'; '.join(texts)}.")
    for name, evaluation in zip(folder_names, evaluations, strict=True):
        if other_domains := [str(d) for d in evaluation.domains if d not in shared_domains]:
            notes.append(f"Domains only in {name} are not compared: {', '.join(other_domains)}.")
    return notes


def _layout(evaluation: Results, shared_domains: Sequence[Any]) -> tuple[dict[Any, Any], set[Any]]:
    """Rows and targets by domain, and the groups of domains that were held out together."""
    rows_by_domain: dict[Any, Any] = {}
    domains_by_split: dict[int, set[Any]] = {}
    for record in next(iter(evaluation.records.values()), ()):
        domains_by_split.setdefault(record["split"], set()).add(record["domain"])
        if record["domain"] in shared_domains:
            rows_by_domain[record["domain"]] = [record[key].tolist() for key in ("row", "target")]
    return rows_by_domain, {frozenset(domains) for domains in domains_by_split.values()}


@dataclass(frozen=True)
class Check:
    """Scores of a model on held-out domains, compared with a constant prediction."""

    metric: str
    model: float  #: mean score of the model over domains; larger is better (errors are negative)
    constant: float  #: mean score of a constant prediction
    worst: float  #: the model's score on ``worst_domain``
    worst_domain: Any
    n_domains: int
    better: bool  #: whether the mean gain over ``constant`` is significant (one-sided test, 10 %)
    low: float | None = None  #: lower end of a 95 % bootstrap interval for ``model``, over domains
    high: float | None = None  #: upper end of this interval
    calibration: dict[str, Any] | None = None  #: calibration of prediction sets
    #: 90 % prediction interval for the score on one new domain.
    range: tuple[float, float] | None = None


def check_table(table: Table, method: str | Method = "auto", **options: Any) -> Check:
    """Score a method and a constant prediction on held-out domains, as ``evaluate`` does.

    ``options`` are passed to :func:`~domainwise.models.table_model.table_setting`.
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
    names = ("class_weight", "predictor", "decision")
    overrides = {name: getattr(setting, name) for name in names}
    method_without_context = replace(find_method(method, len(table.y)), context=False)
    constant_evaluation = run(problem, [METHODS[TRIVIAL]])
    model_evaluation = run(replace(problem, overrides=overrides), [method_without_context])
    calibration = calibrate_sets(model_evaluation.records[model_evaluation.best_], problem.classes)
    model_scores, constant_scores = model_evaluation.best.known, constant_evaluation.best.known
    return compare_with_constant(problem.measure.name, model_scores, constant_scores, calibration)


def compare_with_constant(
    metric: str,
    model_scores: Mapping[Any, float],
    constant_scores: Mapping[Any, float],
    calibration: dict[str, Any] | None = None,
) -> Check:
    """Compare scores of a model and of a constant prediction by domain; larger is better."""
    gains = np.array([score - constant_scores[domain] for domain, score in model_scores.items()])
    n, scores = len(gains), list(model_scores.values())
    # A one-sided t-test at 10 %: one in ten models that are no better than the constant passes.
    min_gain = gains.std(ddof=1) / np.sqrt(n) * stdtrit(n - 1, 0.9)
    worst_domain = min(model_scores, key=lambda domain: model_scores[domain])
    is_better = bool(gains.mean() > max(min_gain, 1e-12))
    mean, constant_mean = float(np.mean(scores)), float(np.mean(list(constant_scores.values())))
    low, high = plain(expected_score(scores, 0)[1:])
    worst, ends = model_scores[worst_domain], expected_range(scores, metric)
    return Check(
        metric, mean, constant_mean, worst, worst_domain, n, is_better, low, high, calibration, ends
    )
