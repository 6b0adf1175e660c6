"""The answer: scores by method and domain, what follows from them, and ways to show it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from domainwise.evaluation.problem import Problem
from domainwise.evaluation.verdict import make_verdict
from domainwise.jobs.statistics import p_text
from domainwise.models.method import In, Method
from domainwise.selection.measure import Measure
from domainwise.selection.predictions import fit_with_domains
from domainwise.tables.errors import import_pandas

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
    records : dict
        Predictions for left-out rows by method, one record per domain; see ``predictions_``.
    methods : list of Method
        The methods of ``results``, as they can be made again.
    source : Problem or None
        All rows, of which those that were evaluated on were drawn.
    inner_cv : splitter or None
        What parameters were chosen by.
    next_step : str
        What the verdict ends with.
    """

    results: list[MethodResult]
    domains: list[Any]
    measure: Measure
    left_out: dict[str, str]
    facts: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    projection: DomainProjection | None = None
    records: dict[str, list[Row]] = field(default_factory=dict)
    methods: list[Method] = field(default_factory=list)
    source: Problem | None = None
    inner_cv: Any = None
    next_step: str = ""

    @property
    def best(self) -> MethodResult:
        """The method with the best mean."""
        return self.results[0]

    @property
    def best_(self) -> str:
        """Name of the method with the best mean, as :meth:`fit` takes it."""
        return self.best.key

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

    def find(self, name: str) -> MethodResult | None:
        """A method by its key or its name in tables, if it was evaluated."""
        wanted = name.lower()
        named = (r for r in self.results if wanted in (r.key.lower(), r.label.lower()))
        return next(named, None)

    def fit(self, method: str | None = None, *, n_jobs: int | None = None) -> Any:
        """Fit what was measured to all rows, those that were not drawn included.

        Parameters are chosen again, on all domains, from the same values; preprocessing and
        weights of classes are the same, too.

        Parameters
        ----------
        method : str, default=None
            One of the methods evaluated, by key or by name; None is ``best_``.
        n_jobs : int, default=None
            Fits at a time.

        Returns
        -------
        model : Pipeline
            Takes rows as they were given; :func:`domainwise.save` writes it to a file.
        """
        chosen = self.find(self.best_ if method is None else method)
        if chosen is None:
            raise ValueError(
                f"method={method!r} was not evaluated; use one of "
                f"{', '.join(result.key for result in self.results)}"
            )
        if self.source is None:
            raise ValueError("this evaluation has no rows to fit to")
        made = next(made for made in self.methods if made.key == chosen.key)
        everything = np.arange(len(self.source.y))
        setting = self.source.setting(len(everything), self.inner_cv)
        setting = replace(setting, probability=True, n_jobs=n_jobs)
        model = made.pipeline(setting, self.source.preprocessor)
        rows = self.source.rows(everything, made.prepare)
        return fit_with_domains(model, rows, self.source.y, self.source.domain_of(everything))

    @property
    def predictions_(self) -> Any:
        """A data frame of what each method predicted for rows of domains that it had not seen.

        Columns: method, row (its number among the rows given), domain, target, prediction, and
        for classes a probability or a decision value of each.
        """
        pandas = import_pandas()
        frames = [
            pandas.DataFrame({"method": key, **record_columns(record, self.facts["classes"])})
            for key, records in self.records.items()
            for record in records
        ]
        return pandas.concat(frames, ignore_index=True)

    def table(self) -> Any:
        """Return a data frame with one row per method, the best mean first.

        Columns: method, mean, worst, worst_domain, spread, within (the reference with labels of
        the domain itself), p_value, p_adjusted, seconds. Errors are shown as positive numbers.
        """
        shown = self.measure.shown
        return import_pandas().DataFrame(
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
        return import_pandas().DataFrame(
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
            "domains": [plain(name) for name in self.domains],
            "best": self.best.key,
            "baseline": None if self.baseline is None else self.baseline.key,
            "worst_domain": plain(self.worst_domain),
            "verdict": self.verdict(),
            "notes": self.notes,
            "left_out": self.left_out,
            "recipe": self._recipe(),
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

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The table and the verdict, for a notebook."""
        show = self.measure.format
        cells = [
            [
                f"{result.label} ●" if result is self.baseline else result.label,
                *(show(value) for value in (result.mean, result.worst)),
                str(result.worst_domain),
                show(result.reference),
                p_text(result.p_value),
            ]
            for result in self.results
        ]
        head = ("method", "mean", "worst", "worst domain", "within", "p")
        rows = [("th", head), *(("td", row) for row in cells)]
        body = "".join(
            "<tr>" + "".join(f"<{tag}>{escape(text)}</{tag}>" for text in row) + "</tr>"
            for tag, row in rows
        )
        title = f"{self.measure.label} ({self.measure.direction}) on left-out domains"
        return f"<p>{escape(title)}</p><table>{body}</table><p>{escape(self.verdict())}</p>"

    def _recipe(self) -> dict[str, Any] | None:
        """What :meth:`fit` would be told, without the rows."""
        if self.source is None:
            return None
        source = self.source
        return {
            "task": source.task,
            "scoring": source.measure.name,
            "pos_label": plain(source.positive),
            "class_weight": source.class_weight,
            "seed": source.seed,
            "grids": {m.key: describe_grid(m.grid(source.classification)) for m in self.methods},
        }

    def _method_dict(self, result: MethodResult) -> dict[str, Any]:
        shown = self.measure.shown
        return {
            "key": result.key,
            "label": result.label,
            "kind": result.kind,
            "mean": _number(shown(result.mean)),
            "worst": _number(shown(result.worst)),
            "worst_domain": plain(result.worst_domain),
            "spread": _number(result.spread),
            "within": _number(shown(result.reference)),
            "p_value": result.p_value,
            "p_adjusted": result.p_adjusted,
            "seconds": round(result.seconds, 3),
            "candidates": result.candidates,
            "per_domain": [
                {
                    "domain": plain(name),
                    "score": _number(shown(score)),
                    "within": _number(shown(result.within[name])),
                }
                for name, score in result.scores.items()
            ],
            "parameters": list(result.parameters),
            "warnings": list(result.warnings),
        }


def describe_grid(grid: Any) -> dict[str, Any] | None:
    """Values that a method chooses from, as JSON knows them."""
    if grid is None:
        return None
    told: dict[str, Any] = {}
    for name, given in grid.items():
        values = [str(v) for v in (given.values if isinstance(given, In) else given)]
        told[name] = {"in": given.unit, "values": values} if isinstance(given, In) else values
    return told


def record_columns(record: Row, classes: Sequence[Any] | None) -> dict[str, Any]:
    """Columns of a table of predictions for the rows of one domain."""
    names = ("row", "domain", "target", "prediction")
    columns: dict[str, Any] = {name: record[name] for name in names}
    for what, name in (("probabilities", "probability"), ("decisions", "decision")):
        values = record[what]
        if values is None or classes is None:
            continue
        if np.ndim(values) == 1:
            columns[f"{name}_{classes[-1]}"] = values
        else:
            columns |= {f"{name}_{c}": values[:, i] for i, c in enumerate(classes)}
    return columns


def plain(value: Any) -> Any:
    """A number or a name as JSON knows it."""
    return value.item() if hasattr(value, "item") else value


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
