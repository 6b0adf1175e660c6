"""The result of an evaluation in sentences: recommendation, expected score, and confidence."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from domainwise.evaluation.results import UNKNOWN, MethodResult, Results, listed, percent
from domainwise.models.registry import CONTEXT, TRIVIAL
from domainwise.report.page import TextCell, TextTable
from domainwise.scoring.statistics import MIN_PAIRS, compare, in_words, p_text

#: A difference with a smaller p-value is called statistically significant.
SIGNIFICANCE_LEVEL = 0.05
#: Maximum number of faults on the first screen.
MAX_FAULTS = 5
#: If there is no constant prediction to compare with, confidence is high if the 90 % range is at
#: most this wide; for error metrics, relative to the mean.
MAX_RANGE_WIDTH = 0.2
#: Minimum AUC of a column that distinguishes a domain from the others.
IDENTIFYING_AUC = 0.8
NO_FAULT = (
    "No serious problem was found. The table was checked for leaks, placeholder values, wrong "
    "units and signs, and missing columns."
)


@dataclass(frozen=True)
class Answer:
    """The sentences on the first screen of the page; a sentence that does not apply is empty."""

    take: str  #: name of the recommended method
    reason: str  #: reason for the recommendation
    context: str  #: gain from predicting all rows of a domain together
    expect: str  #: score at the next site
    certainty: str  #: confidence: low, medium or high
    certain: str  #: reason for the confidence
    faults: list[dict[str, str]]  #: each with a "problem" and an "action"
    more_faults: int  #: number of faults that are not in the list
    labels: str  #: gain from labels at the next site
    command: str  #: command that fits the recommended method
    watch: str  #: how to check new rows for shift

    def sentences(self) -> list[str]:
        """All sentences, in the order of the page."""
        recommendation = f"Use {self.take}: {self.reason}" if self.take else self.reason
        confidence = f"Confidence: {self.certainty}. {self.certain}"
        faults = [f"Check first: {' '.join(fault.values()).strip()}" for fault in self.faults]
        command = f"Next: {self.command}" if self.command else ""
        expect = f"Expect {self.expect}"
        texts = (recommendation, self.context, expect, confidence, *faults, self.labels, command)
        return [text for text in texts if text]

    def lines(self, width: int = 80) -> list[str]:
        """The sentences as at most twelve lines; only a command may exceed the width."""
        recommendation = f"{self.take}: {self.reason}" if self.take else self.reason
        wrap = partial(textwrap.wrap, width=width - 13, placeholder=" …")
        sections = {
            "Recommended": wrap(recommendation, max_lines=3),
            "Expect": wrap(self.expect, max_lines=3),
            "Confidence": wrap(f"{self.certainty}. {self.certain}", max_lines=2),
        }
        # One line for each of three faults, one for the number of others, and one for the command.
        # Any remaining lines are second lines of the worst faults.
        n_lines = 11 - sum(map(len, sections.values()))
        faults = [" ".join(fault.values()) for fault in self.faults[: min(3, n_lines - 1)]]
        n_hidden = len(self.faults) - len(faults) + self.more_faults
        faults = faults or [NO_FAULT]
        n_extra = n_lines - len(faults) - (n_hidden > 0)
        wrapped_faults = (wrap(text, max_lines=1 + (i < n_extra)) for i, text in enumerate(faults))
        lines = [line for texts in wrapped_faults for line in texts]
        if n_hidden:
            problems = f"{'more' if self.faults else 'minor'} problem{'s' * (n_hidden > 1)}"
            lines.append(f"{n_hidden} {problems} in the report")
        sections["Check first"] = lines
        sections["Next"] = [self.command] * bool(self.command)
        return [
            f"{'' if i else name:13}{line}"
            for name, texts in sections.items()
            for i, line in enumerate(texts)
        ]


def make_answer(results: Results) -> Answer:
    """Describe the results in sentences."""
    method = results.recommended
    faults = results.differences.get("faults", ())
    severe_faults = [fault for fault in faults if fault["severity"] > 1]
    messages = [fault_in_words(fault) for fault in severe_faults]
    _, _, arguments = results.next_step.partition(": domainwise ")
    command = "" if method.trivial else "model = evaluation.fit()"
    check_call = "check_shift(model, X)"
    if arguments:
        command, check_call = f"domainwise {arguments}", "domainwise predict"
    failed_keys = [key for key, reason in results.left_out.items() if reason.startswith("failed")]
    if failed_keys:
        text = f"These methods failed and have no score: {', '.join(failed_keys)}."
        messages.append({"problem": text, "action": "The notes contain the error messages."})
    first_messages = messages[:MAX_FAULTS]
    return Answer(
        "" if method.trivial else method.label,
        _reason(results),
        _context(results),
        _expect(results),
        *_certainty(results),
        first_messages,
        len(messages) + len(faults) - len(severe_faults) - len(first_messages),
        label_sentence(results),
        command,
        ""
        if method.trivial
        else f"{check_call} reports new rows that differ from all known domains.",
    )


def fault_in_words(fault: dict[str, Any]) -> dict[str, str]:
    """Return the problem with its effect, and the action, as text."""
    problem = f"{fault['message']} {fault['effect']}".strip()
    return {"problem": problem, "action": fault["action"]}


def _reason(results: Results) -> str:
    """The reason for the recommendation."""
    method, rival, leader = results.recommended, results.rival, results.leader()
    label, show = results.measure.label, results.show
    n_scored, n_domains = len(method.known), results.facts.get("domains", 0)
    of_all = f" of {in_words(n_domains)}" if n_scored < n_domains else ""
    plural = "s" * (max(n_scored, n_domains) > 1)
    domains = f"{in_words(n_scored)}{of_all} held-out domain{plural}"
    where = f"over {domains}"
    if method.trivial:
        row_by_row = " that predicts rows one by one" * any(r.context for r in results.results)
        next_best = f"; {rival.label} is second, with {show(rival.mean)}" if rival else ""
        return (
            f"No method{row_by_row} is better than always predicting {_constant(results)}, which "
            f"has a mean {label} of {show(method.mean)} {where}{next_best}."
        )
    mean: Callable[[MethodResult], float] = results.weighted_mean
    other = leader if leader is not method else rival
    if other is not None and not other.trivial and mean(method) - mean(other) < results.margin:
        worst = f"{show(method.worst)} and {show(other.worst)}"
        advantage = f", and better on the worst domain ({worst})" * (method.worst > other.worst)
        if method.cost < other.cost:
            advantage = ", and simpler and faster"
        means = f"mean {label}: {show(method.mean)} and {show(other.mean)}"
        return f"as good as {other.label} on {domains} ({means}){advantage}."
    if method is max(results.row_by_row, key=lambda result: result.mean):
        mean = attrgetter("mean")
    else:
        where += ", with less weight for domains with few rows"
    if rival is None:
        return f"the only evaluated method; its mean {label} {where} is {show(method.mean)}."
    if rival.trivial:
        return f"best mean {label} {where}."
    lead = show(results.measure.sign * (mean(method) - mean(rival)))
    p_value = compare(method.known, rival.known).p_value
    if method.p_adjusted is not None and rival is results.baseline:
        p_value = method.p_adjusted
    if p_value is None:
        n = len(method.known.keys() & rival.known.keys())
        chance = f"with {in_words(n)} domains, this may be due to chance"
    else:
        significant = p_value < SIGNIFICANCE_LEVEL
        chance = "this is statistically significant" if significant else "this may be due to chance"
        chance += f" (p {'' if p_value < 0.001 else '= '}{p_text(p_value)})"
    return f"best mean {label} {where}, {lead} better than {rival.label}; {chance}."


def _context(results: Results) -> str:
    """The gain from predicting all rows of a new domain together; empty if there is no gain."""
    method, show = results.recommended, results.show
    better_methods = [
        r for r in results.results if r.context and r.mean - method.mean > results.margin
    ]
    if method.context or not better_methods:
        return ""
    best = max(better_methods, key=results.weighted_mean)
    is_same_method = best.key.removesuffix(CONTEXT) == method.key
    text = (
        "If you can predict all rows from the next site together, use "
        f"{f'{method.label} with context' if is_same_method else best.label}: its mean "
        f"{results.measure.label} is {show(best.mean)} instead of {show(method.mean)}."
    )
    batches = {kind: means for kind, means in best.batches.items() if kind != "whole"}
    if not batches:
        return text
    if not best.holds_up:
        kind = min(batches, key=lambda name: batches[name]["context"] - batches[name]["plain"])
        with_context, without = (show(batches[kind][name]) for name in ("context", "plain"))
        scores_text = f"{kind}: {with_context} instead of {without}"
        return f"{text} Do not use it for only some of the rows ({scores_text})."
    scores_text = listed([f"{show(means['context'])} ({kind})" for kind, means in batches.items()])
    return f"{text} With only some of the rows, it is {scores_text}."


def _expect(results: Results) -> str:
    """The expected score at the next site."""
    method, measure, show = results.recommended, results.measure, results.show
    ends, n = results.next_site, len(method.known)
    constant, comparison = results.find(TRIVIAL), ""
    if constant is not None and not method.trivial:
        comparison = f" Always predicting {_constant(results)} scores {show(constant.mean)}."
    if (rerun := results.differences.get("without_leaks")) and rerun["scores"]:
        name = max(rerun["scores"], key=lambda name: rerun["scores"][name])
        columns, score = listed(rerun["columns"]), show(rerun["scores"][name])
        comparison = f" Without {columns}, the best score is {score} ({name}).{comparison}"
    if ends is not None:
        low, high = (show(measure.sign * end) for end in ends)
        return (
            f"{measure.label} between {low} and {high} at the next site, with a probability of "
            f"90 %. The mean over held-out domains is {show(method.mean)}.{comparison}"
        )
    summary = f"{measure.label} {show(method.mean)} on average"
    if n < 2:
        return f"{summary}. A 90 % range cannot be computed from one scored domain.{comparison}"
    low, high = sorted(map(show, method.known.values()), key=float)[:: n - 1]
    probability = {2: "one third", 3: "one half"}[n]
    return (
        f"{summary}. A 90 % range cannot be computed from {in_words(n)} domains: the score at the "
        f"next site is between {low} and {high} with a probability of {probability}.{comparison}"
    )


def _constant(results: Results) -> str:
    """Description of the constant prediction, with its name in tables."""
    value = "mean of the target" if results.classes is None else "most frequent class"
    return f"the {value} ({next(r.label for r in results.results if r.trivial)})"


def _certainty(results: Results) -> tuple[str, str]:
    """Confidence (low, medium or high), and the reason."""
    method, constant, show = results.recommended, results.find(TRIVIAL), results.show
    n, sign, ends = len(method.known), results.measure.sign, results.next_site
    faults = results.differences.get("faults", ())
    leaks = [name for fault in faults if fault["leak"] for name in fault["columns"]]
    if leaks:
        return "low", f"The scores may be too good, because {listed(leaks)} may contain the answer."
    if n < MIN_PAIRS or ends is None:
        domains = "One domain is" if n == 1 else f"{in_words(n).capitalize()} domains are"
        return "low", f"{domains} not enough to predict the score at the next site reliably."
    worse_end, better_end = (sign * end for end in ends[::sign])
    if constant is None or method.trivial:
        if (better_end - worse_end) / (1.0 if sign > 0 else abs(method.mean)) > MAX_RANGE_WIDTH:
            worst = f"{show(method.worst)}, on {names_of(method.worst_domain)}"
            return "medium", f"Domains differ: the worst score is {worst}."
        return "high", f"The scores on {in_words(n)} domains are similar."
    prediction = f"a constant prediction ({show(constant.mean)})"
    large_part = f"more than half of the gain over {prediction}"
    if worse_end >= (method.mean + constant.mean) / 2:
        return "high", f"Even at the worse end of the 90 % range, {large_part} remains."
    loss = f"{large_part} may be lost"
    if worse_end <= constant.mean:
        loss = f"{method.label} may be no better than {prediction}"
    return "medium", f"Domains differ: at the next site, {loss}."


def names_of(*domains: object) -> str:
    """Names of domains for a sentence, after the word "domain" if a name starts with a digit.

    >>> names_of("bath"), names_of(3), names_of(3, 4)
    ('bath', 'domain 3', 'domains 3 and 4')
    """
    names = [str(domain) for domain in domains]
    prefix = f"domain{'s' * (len(names) > 1)} " * any(name[:1].isdigit() for name in names)
    return prefix + listed(names)


def interval(results: Results, ends: tuple[float, float] | None) -> str:
    """An interval of displayed scores as text; a dash if it is unknown or empty."""
    low, high = ends or UNKNOWN
    text = " to ".join(results.show(results.measure.sign * end) for end in (low, high))
    return text if low < high else "–"


def domains_table(results: Results, shown: Sequence[MethodResult]) -> TextTable:
    """Scores of some methods by domain, and details of the recommended one; worst domain first."""
    method, classes, show = results.recommended, results.facts["classes"], results.show
    target = "target quartiles" if classes is None else "most frequent classes"
    if classes is not None and len(classes) == 2:
        target = f"share of class {classes[1]}"
    columns = ["domain", *(r.label for r in shown), "95 %", "seen", "within", "rows", target]
    domains = {domain["name"]: domain for domain in results.differences.get("domains", ())}
    rows = []
    for name in results.hardest_first:
        domain = domains.get(str(name))
        best = max(r.known.get(name, -np.inf) for r in results.results)
        cells = [TextCell(str(name))]
        for r in shown:
            is_best, mark = r.scores[name] == best, "outside" * (name == r.worst_domain)
            cells.append(TextCell(show(r.scores[name]), is_best, mark))
        details = (method.seen.get(name), method.within.get(name))
        texts = [interval(results, results.ends(method, name)), *map(show, details)]
        texts += [f"{domain['rows']:,}", _target(domain, classes)] if domain else ["–", "–"]
        rows.append([*cells, *map(TextCell, texts)])
    kinds = ["worst" if name == results.worst_domain else "" for name in results.hardest_first]
    return TextTable(columns, rows, kinds).without_empty_columns()


def _target(domain: dict[str, Any], classes: list[Any] | None) -> str:
    """Quartiles of the target in a domain, or class frequencies."""
    if classes is None:
        is_integer = all(value == round(value) for value in domain["target"])
        return " / ".join(f"{v:.4g}" if is_integer else f"{v:#.4g}" for v in domain["target"])
    counts = domain["classes"]
    if len(classes) == 2:
        return percent(counts[1] / domain["rows"])
    frequent_classes = sorted(zip(counts, map(str, classes), strict=True), reverse=True)[:3]
    return ", ".join(f"{c}: {percent(n / domain['rows'])}" for n, c in frequent_classes if n)


def label_sentence(results: Results) -> str:
    """The gain from labels at the next site; empty if it is unknown."""
    gains = {g["n_labels"]: results.measure.sign * g["score"] for g in results.label_gain}
    if not gains:
        return ""
    start, *counts = gains
    label, show, margin = results.measure.label, results.show, results.margin
    best = max(gains[n] for n in counts)
    if best - gains[start] < margin:
        last = counts[-1]
        scores = f"{show(gains[start])} without labels and {show(gains[last])} with {last}"
        return f"Labels from the next site would hardly help: the expected {label} is {scores}."
    # The smallest number of labels with about the best score.
    n_enough = next(n for n in counts if best - gains[n] < margin)
    n_first = counts[0] if gains[counts[0]] - gains[start] >= margin else n_enough
    text = f"With {n_first} labels from the next site, the expected {label} is "
    text += f"{show(gains[n_first])} instead of {show(gains[start])}"
    text += f"; with {n_enough}, it is {show(gains[n_enough])}" * (n_enough != n_first)
    return text + (". More labels add little." if n_enough < counts[-1] else ".")


def difference_sentence(results: Results) -> str:
    """A sentence about the columns that distinguish a domain from the others."""
    differences = results.differences
    columns = differences["columns"]
    names = [domain["name"] for domain in differences["domains"]]
    descriptions = [
        f"{c['name']} ({names_of(names[c['tells_at']])}, AUC {c['tells']:.2f})" for c in columns
    ]
    n_columns = sum(column["tells"] >= IDENTIFYING_AUC for column in columns)
    distinguish = "distinguish one domain from all others, by values or by missing values"
    if not n_columns:
        return f"No single column can {distinguish}; the best is {descriptions[0]}."
    n_all = len(columns) + differences["others"]
    return f"{n_columns} of {n_all} columns can {distinguish}: {listed(descriptions[:n_columns])}."


def importance_sentences(results: Results) -> list[str]:
    """Sentences about the most important column, and about columns that could be dropped."""
    method, importance = results.recommended, results.recommended.importance
    if not importance:
        return []
    top_column = max(importance, key=lambda name: importance[name])
    change = "decreases" if results.measure.sign > 0 else "increases"
    loss = results.show(results.measure.sign * importance[top_column])
    max_unused = results.margin / 2
    beginning = "The most important column on held-out domains is"
    if importance[top_column] < max_unused:
        beginning = "No single column is important on held-out domains; the most important one is"
    sentences = [
        f"{beginning} {top_column}: if its values are shuffled, the {results.measure.label} of "
        f"{method.label} {change} by {loss}."
    ]
    faulty_columns = {
        name for f in results.differences.get("faults", ()) for name in f.get("columns", ())
    }
    unused_columns = [
        column["name"]
        for column in results.differences["columns"]
        if column["tells"] >= IDENTIFYING_AUC
        and column["name"] not in faulty_columns
        and importance.get(column["name"], np.inf) < max_unused
    ]
    if unused_columns:
        them = "it" if len(unused_columns) == 1 else "them"
        advice = f"Consider dropping {listed(unused_columns)}: {method.label} hardly uses {them}"
        sentences.append(f"{advice}, but could use {them} to distinguish domains.")
    return sentences
