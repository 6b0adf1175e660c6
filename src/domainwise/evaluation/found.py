"""What was found: scores by method and domain, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from domainwise.arrays import CrossValidator, Label
from domainwise.evaluation.problem import Problem
from domainwise.evaluation.projection import DomainProjection
from domainwise.models.method import Method
from domainwise.scoring.intervals import expected_score
from domainwise.scoring.measures import Measure

Row = dict[str, Any]


@dataclass(frozen=True)
class MethodResult:
    """How a method did."""

    key: str
    label: str
    kind: str
    about: str
    #: Of each domain when it was left out; larger is better, NaN where undefined.
    scores: Mapping[Any, float]
    within: Mapping[Any, float]  #: of folds inside each domain: what labels there would give
    parameters: Sequence[Mapping[str, Any]] = ()  #: what was chosen, split by split
    candidates: int = 1
    seconds: float = 0.0  #: of all its splits together
    warnings: tuple[str, ...] = ()  #: said while fitting
    #: Wilcoxon's signed-rank test over domains against the best plain baseline; None for baselines,
    #: and where there are too few domains.
    p_value: float | None = None
    p_adjusted: float | None = None  #: by Holm's rule for the number of methods tested
    context: bool = False  #: whether it was given the rows of a left-out domain together
    #: Of each domain in random folds of all rows: what is reached where a domain was seen.
    seen: Mapping[Any, float] = field(default_factory=dict)
    #: 95 % intervals: of the score of each domain, and of "mean", "worst", "price" (what being
    #: unseen costs) and, of the best method, "gap" (to its rival).
    ends: Mapping[Any, tuple[float, float]] = field(default_factory=dict)
    around: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    #: What is lost on left-out domains if a column is shuffled, by column.
    worth: Mapping[str, float] = field(default_factory=dict)

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
    def worst_domain(self) -> Label:
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
        return _mean(self.within.values())

    @property
    def seen_mean(self) -> float:
        """Mean score in random folds, over the domains that are scored when left out, too."""
        return _mean(self.seen.get(name, float("nan")) for name in self.known)

    @property
    def price(self) -> float:
        """What being unseen costs."""
        return self.seen_mean - self.mean


@dataclass(repr=False)
class Found:
    """Scores of methods on domains left out; :class:`Evaluation` says what the attributes are."""

    results: list[MethodResult]
    domains: list[Label]
    measure: Measure
    left_out: dict[str, str]
    facts: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    projection: DomainProjection | None = None
    records: dict[str, list[Row]] = field(default_factory=dict)
    methods: list[Method] = field(default_factory=list)
    source: Problem | None = None
    inner_cv: CrossValidator = None
    next_step: str = ""
    others: list[Self] = field(default_factory=list)
    chosen_for: Measure | None = None
    calibration: dict[str, Any] = field(default_factory=dict)
    differences: dict[str, Any] = field(default_factory=dict)
    lacking: str = ""

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
    def worst_domain(self) -> Label:
        """The domain on which the best method does worst."""
        return self.best.worst_domain

    @property
    def scores(self) -> dict[str, dict[Label, float]]:
        """Scores by method and domain; larger is better."""
        return {result.key: dict(result.scores) for result in self.results}

    @property
    def main(self) -> list[MethodResult]:
        """The best method, and the best plain one where that is another."""
        plain = self.baseline
        return [self.best] if plain is None or plain is self.best else [self.best, plain]

    @property
    def rival(self) -> MethodResult | None:
        """Whom the best method is set against: the best plain one, or for that the best other."""
        if self.best.kind != "baseline":
            return self.baseline
        others = [result for result in self.results if result.kind != "baseline"]
        if not others and self.best.key == "constant":
            others = self.results[1:]
        return others[0] if others else None

    @property
    def margin(self) -> float:
        """A difference of means below this is none in practice: 0.01, or 2 % of an error."""
        if self.measure.sign > 0:
            return 0.01
        return 0.02 * abs((self.baseline or self.best).mean)

    def show(self, score: float | None) -> str:
        """A score with as many digits as tell the best method from the next and its rival."""
        rivals = [r.mean for r in (*self.results[1:2], self.rival) if r is not None]
        for digits in (3, 4, 5):
            texts = {self.measure.format(mean, digits) for mean in rivals}
            if self.measure.format(self.best.mean, digits) not in texts:
                return self.measure.format(score, digits, self.best.mean)
        return self.measure.format(score, like=self.best.mean)

    def expect(self, result: MethodResult) -> tuple[float, float, float]:
        """Mean over domains as it is shown, and a 95 % interval of it, from draws of domains."""
        mean, *ends = expected_score(list(result.known.values()), 0)
        low, high = sorted(self.measure.shown(end) for end in ends)
        return self.measure.shown(mean), low, high

    def ends(self, result: MethodResult, domain: Label) -> tuple[float, float]:
        """Ends of the 95 % interval of the score on a domain, as they are shown."""
        ends = result.ends.get(domain, (np.nan, np.nan))[:: self.measure.sign]
        return self.measure.shown(ends[0]), self.measure.shown(ends[1])

    def find(self, name: str) -> MethodResult | None:
        """A method by its key or its name in tables, if it was evaluated."""
        wanted = name.lower()
        named = (r for r in self.results if wanted in (r.key.lower(), r.label.lower()))
        return next(named, None)


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if np.isfinite(value)]
    return float(np.mean(known)) if known else float("nan")


def percent(share: float) -> str:
    """A share in words, to the whole per cent."""
    return f"{100 * share:.0f} %"


def plain(value: Any) -> Any:
    """A name, a number, or whatever holds such as JSON knows it; None for what is not known."""
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not np.isfinite(value) else value
