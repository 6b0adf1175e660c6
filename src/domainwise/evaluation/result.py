"""The answer: scores by method and domain, what follows from them, and ways to show it."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import sklearn

from domainwise import __version__
from domainwise.evaluation.problem import Problem
from domainwise.evaluation.verdict import make_verdict
from domainwise.jobs.statistics import compare, p_text
from domainwise.models.method import Method
from domainwise.selection.measure import Measure

if TYPE_CHECKING:
    from domainwise.evaluation.projection import DomainProjection

Row = dict[str, Any]


@dataclass(frozen=True)
class MethodResult:
    """How a method did.

    Attributes
    ----------
    key, label, kind, about : str
        What it is.
    scores : dict
        Score of each domain when it was left out; larger is better, NaN where undefined.
    within : dict
        Score of folds inside each domain: what labels there would give.
    mean, worst, spread, reference : float
        Over domains: mean, minimum, standard deviation, mean of ``within``.
    worst_domain : object
        Where the minimum is.
    p_value, p_adjusted : float or None
        Wilcoxon's signed-rank test over domains against the best plain baseline, and the same by
        Holm's rule for the number of methods tested. None for baselines, and where there are too
        few domains.
    parameters : list of dict
        What was chosen, split by split.
    seconds : float
        Of all its splits together.
    warnings : tuple of str
        Said while fitting.
    """

    key: str
    label: str
    kind: str
    about: str
    scores: Mapping[Any, float]
    within: Mapping[Any, float]
    parameters: Sequence[Mapping[str, Any]] = ()
    candidates: int = 1
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    p_value: float | None = None
    p_adjusted: float | None = None

    @property
    def known(self) -> dict[Any, float]:
        """Scores of the domains on which the measure is defined."""
        return {name: score for name, score in self.scores.items() if np.isfinite(score)}

    @property
    def mean(self) -> float:
        """Mean over domains, each counting once."""
        return float(np.mean(list(self.known.values())))

    @property
    def worst(self) -> float:
        """Score of the worst domain."""
        return min(self.known.values())

    @property
    def worst_domain(self) -> Any:
        """The worst domain."""
        return min(self.known, key=lambda name: self.known[name])

    @property
    def spread(self) -> float:
        """Standard deviation over domains."""
        values = list(self.known.values())
        return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")

    @property
    def reference(self) -> float:
        """Mean over domains of the score inside each."""
        values = [value for value in self.within.values() if np.isfinite(value)]
        return float(np.mean(values)) if values else float("nan")


@dataclass(repr=False)
class Evaluation:
    """What :func:`domainwise.evaluate` found.

    Attributes
    ----------
    results : list of MethodResult
        Methods in order of their mean score, the best first.
    domains : list
        The domains that were left out.
    measure : Measure
        What was measured.
    baseline : MethodResult or None
        The plain method with the best mean, which the others are compared with.
    worst_domain : object
        The domain that the best method finds hardest.
    left_out : dict
        Methods that could not be used, with the reason.
    projection : DomainProjection or None
        Rows projected with the worst domain left out, for pictures.
    facts : dict
        Task, sizes, seed, versions.
    """

    results: list[MethodResult]
    domains: list[Any]
    measure: Measure
    left_out: dict[str, str]
    facts: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    projection: DomainProjection | None = None

    @classmethod
    def from_rows(
        cls,
        problem: Problem,
        methods: Sequence[Method],
        rows: Sequence[Row],
        left_out: Mapping[str, str],
    ) -> Evaluation:
        """Gather the rows of all jobs."""
        missing = dict(left_out)
        results = []
        for method in methods:
            mine = [row for row in rows if row["method"] == method.key]
            errors = [row["error"] for row in mine if "error" in row]
            if errors:
                missing[method.key] = f"failed: {errors[0]}"
                continue
            scores = _by_domain(problem, mine, "scores")
            if not any(np.isfinite(value) for value in scores.values()):
                missing[method.key] = f"{problem.measure.label} is defined on no domain"
                continue
            results.append(
                MethodResult(
                    method.key,
                    method.label(problem.classification),
                    method.kind,
                    method.about,
                    scores,
                    _by_domain(problem, mine, "within"),
                    [row["parameters"] for row in mine],
                    mine[0]["candidates"],
                    float(sum(row["seconds"] for row in mine)),
                    tuple(dict.fromkeys(text for row in mine for text in row["warnings"])),
                )
            )
        if not results:
            reasons = "; ".join(f"{key} {reason}" for key, reason in missing.items())
            raise ValueError(f"no method could be evaluated: {reasons}")
        compared = _with_p_values(results)
        domains = list(compared[0].scores)
        found = cls(compared, domains, problem.measure, missing, _facts(problem))
        found.notes = _notes(problem, found, rows)
        return found

    @property
    def best(self) -> MethodResult:
        """The method with the best mean."""
        return self.results[0]

    @property
    def baseline(self) -> MethodResult | None:
        """The plain method with the best mean."""
        return next((result for result in self.results if result.kind == "baseline"), None)

    @property
    def worst_domain(self) -> Any:
        """The domain on which the best method does worst."""
        return self.best.worst_domain

    @property
    def scores(self) -> dict[str, dict[Any, float]]:
        """Scores by method and domain; larger is better."""
        return {result.key: dict(result.scores) for result in self.results}

    def find(self, key: str) -> MethodResult | None:
        """A method by its key, if it was evaluated."""
        return next((result for result in self.results if result.key == key), None)

    def table(self) -> Any:
        """Return a data frame with one row per method, the best mean first.

        Columns: method, mean, worst, worst_domain, spread, within (the reference with labels of
        the domain itself), p_value, p_adjusted, seconds. Errors are shown as positive numbers.
        """
        shown = self.measure.shown
        return _frame(
            [
                {
                    "method": result.label,
                    "mean": shown(result.mean),
                    "worst": shown(result.worst),
                    "worst_domain": result.worst_domain,
                    "spread": result.spread,
                    "within": shown(result.reference),
                    "p_value": result.p_value,
                    "p_adjusted": result.p_adjusted,
                    "seconds": result.seconds,
                }
                for result in self.results
            ]
        )

    def per_domain(self) -> Any:
        """Return a data frame with one row per method and domain."""
        shown = self.measure.shown
        return _frame(
            [
                {
                    "method": result.label,
                    "domain": name,
                    "score": shown(score),
                    "within": shown(result.within[name]),
                    "worst": name == result.worst_domain,
                }
                for result in self.results
                for name, score in result.scores.items()
            ]
        )

    def verdict(self) -> str:
        """Return in words which method holds up, and how sure that is."""
        return " ".join(make_verdict(self))

    def plot(self) -> Any:
        """Return a matplotlib figure of every method's score on every domain."""
        from domainwise.evaluation.plots import scores_figure

        return scores_figure(self)

    def report(self, path: Any, *, title: str | None = None) -> Path:
        """Write an HTML page that loads nothing from elsewhere, and return its path.

        Parameters
        ----------
        path : path-like
            File to write; an existing one is replaced.
        title : str, default=None
            Heading of the page.
        """
        from domainwise.evaluation.page import render
        from domainwise.jobs.atomic import write_text

        target = Path(path)
        write_text(target, render(self, title=title))
        return target

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, lists and strings; None where undefined."""
        return {
            "facts": self.facts,
            "measure": {
                "name": self.measure.name,
                "label": self.measure.label,
                "greater_is_better": self.measure.sign > 0,
            },
            "domains": [_plain(name) for name in self.domains],
            "best": self.best.key,
            "baseline": None if self.baseline is None else self.baseline.key,
            "worst_domain": _plain(self.worst_domain),
            "verdict": self.verdict(),
            "notes": self.notes,
            "left_out": self.left_out,
            "methods": [self._method_dict(result) for result in self.results],
        }

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    def __str__(self) -> str:
        lines = [f"{'method':14}{'mean':>9}{'worst':>9}{'within':>9}{'p':>8}  worst domain"]
        for result in self.results:
            numbers = (result.mean, result.worst, result.reference)
            shown = "".join(f"{self.measure.format(value):>9}" for value in numbers)
            p = p_text(result.p_value)
            lines.append(f"{result.label:14}{shown}{p:>8}  {result.worst_domain!s}")
        return "\n".join([f"{self.measure.label} on left-out domains", *lines, "", self.verdict()])

    __repr__ = __str__  # what a notebook shows

    def _method_dict(self, result: MethodResult) -> dict[str, Any]:
        shown = self.measure.shown
        return {
            "key": result.key,
            "label": result.label,
            "kind": result.kind,
            "mean": _number(shown(result.mean)),
            "worst": _number(shown(result.worst)),
            "worst_domain": _plain(result.worst_domain),
            "spread": _number(result.spread),
            "within": _number(shown(result.reference)),
            "p_value": result.p_value,
            "p_adjusted": result.p_adjusted,
            "seconds": round(result.seconds, 3),
            "candidates": result.candidates,
            "per_domain": [
                {
                    "domain": _plain(name),
                    "score": _number(shown(score)),
                    "within": _number(shown(result.within[name])),
                }
                for name, score in result.scores.items()
            ],
            "parameters": list(result.parameters),
            "warnings": list(result.warnings),
        }


def _by_domain(problem: Problem, rows: Sequence[Row], name: str) -> dict[Any, float]:
    """Mean over the splits in which a domain was left out, in the order of the domains."""
    found: dict[int, list[float]] = {}
    for row in rows:
        for code, value in row[name].items():
            found.setdefault(code, []).append(value)
    return {_plain(problem.domains[code]): float(np.mean(found[code])) for code in sorted(found)}


def _with_p_values(results: list[MethodResult]) -> list[MethodResult]:
    """Sort by mean and test against the best baseline, over domains."""
    results = sorted(results, key=lambda result: -result.mean)
    baseline = next((result for result in results if result.kind == "baseline"), None)
    if baseline is None:
        return results
    raw = {
        result.key: p_value
        for result in results
        if result.kind != "baseline"
        and (p_value := compare(result.known, baseline.known).p_value) is not None
    }
    adjusted = holm(raw)
    return [
        replace(result, p_value=raw.get(result.key), p_adjusted=adjusted.get(result.key))
        for result in results
    ]


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Adjust p-values for their number by Holm's rule.

    >>> holm({"a": 0.01, "b": 0.04})
    {'a': 0.02, 'b': 0.04}
    """
    adjusted: dict[str, float] = {}
    largest = 0.0
    for rank, (key, p_value) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_value))
        adjusted[key] = largest
    return adjusted


def _notes(problem: Problem, found: Evaluation, rows: Sequence[Row]) -> list[str]:
    notes = []
    if len(problem.y) < problem.n_given:
        notes.append(
            f"{len(problem.y):,} of {problem.n_given:,} rows were used, drawn evenly from the "
            "domains (max_rows)."
        )
    undefined = [str(name) for name, score in found.best.scores.items() if not np.isfinite(score)]
    if undefined:
        notes.append(
            f"{found.measure.label} is not defined on {', '.join(undefined)}; the means leave "
            "these domains out."
        )
    if any(row.get("selected_on") == "rows" for row in rows):
        notes.append(
            "Some parameters were chosen by folds of rows, because there was no second source "
            "domain to leave out."
        )
    notes += [f"{key}: {reason}." for key, reason in found.left_out.items()]
    return notes


def _facts(problem: Problem) -> dict[str, Any]:
    return {
        "task": problem.task,
        "rows": len(problem.y),
        "rows_given": problem.n_given,
        "columns": int(problem.X.shape[1]),
        "domains": len(problem.domains),
        "classes": None if problem.classes is None else [_plain(c) for c in problem.classes],
        "seed": problem.seed,
        "python": platform.python_version(),
        "versions": {
            "domainwise": __version__,
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
        },
    }


def _frame(rows: list[dict[str, Any]]) -> Any:
    from domainwise.tables.files import import_pandas

    return import_pandas().DataFrame(rows)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
