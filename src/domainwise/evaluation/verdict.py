"""The result of an evaluation in sentences: recommendation, expected score, and confidence."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from domainwise.base.messages import listed
from domainwise.evaluation.html import TextCell, TextTable
from domainwise.evaluation.results import UNKNOWN, MethodResult, Results, percent
from domainwise.evaluation.sites import has_outputs, pool_method, validation_size
from domainwise.held_out.scoring.statistics import MIN_PAIRS, compare, in_words, p_text
from domainwise.models.registry import CONTEXT, TRIVIAL

#: A difference with a smaller p-value is called statistically significant.
SIGNIFICANCE_LEVEL = 0.05
#: Maximum number of problems on the first screen of the report.
MAX_FAULTS = 5
#: Minimum AUC of a column that distinguishes a domain from the others.
IDENTIFYING_AUC = 0.8
#: Names of methods in sentences, if they differ from the labels in tables.
PHRASES = {
    "constant": "the constant prediction",
    "ensemble": "the ensemble",
    "logistic": "logistic regression",
    "ridge": "ridge regression",
    "SVM": "the SVM",
    "SVR": "the SVR",
}
NO_FAULT = (
    "No serious problem found. The checks cover columns that reveal the target, codes for missing "
    "values, missing columns, units and signs."
)


@dataclass(frozen=True)
class Answer:
    """The sentences on the first screen of the report; a sentence that does not apply is empty."""

    take: str  #: name of the recommended method
    reason: str  #: reason for the recommendation
    context: str  #: gain from predicting all rows of a domain together
    expect: str  #: expected score at the next site
    certainty: str  #: confidence: low, medium or high
    certain: str  #: reason for the confidence
    faults: list[dict[str, str]]  #: each with a "problem" and an "action"
    more_faults: int  #: number of faults that are not in the list
    labels: str  #: gain from labels at the next site
    validation: str  #: number of rows needed to validate the model at the next site
    command: str  #: command that fits the recommended method
    watch: str  #: how to check new rows for shift

    def sentences(self) -> list[str]:
        """All sentences, in the order of the report."""
        recommendation = f"Use {self.take}: {self.reason}" if self.take else self.reason
        confidence = f"Confidence: {self.certainty}. {self.certain}"
        problems = [f"Check first: {' '.join(fault.values()).strip()}" for fault in self.faults]
        command = f"Next: {self.command}" if self.command else ""
        outlook = f"Expect {self.expect}"
        texts = (recommendation, self.context, outlook, confidence, *problems, self.labels)
        texts = (*texts, self.validation, command)
        return [text for text in texts if text]

    def lines(self, width: int = 80, report: str = "the report") -> list[str]:
        """The sentences as at most ten lines; only the command and ``report`` may be wider."""
        recommendation = f"{self.take}: {self.reason}" if self.take else self.reason
        wrap = partial(textwrap.wrap, width=width - 13, placeholder=" …", break_on_hyphens=False)
        outlook = _whole_sentences(self.expect, 2, wrap)
        if outlook.count(". ") < 1 < self.expect.count(". "):
            outlook = _whole_sentences(self.expect, 3, wrap)
        sections = {
            "Recommended": wrap(recommendation, max_lines=3),
            "Expect": wrap(outlook, max_lines=3),
        }
        n_free = 7 - sum(map(len, sections.values()))
        confidence = _whole_sentences(f"{self.certainty}. {self.certain}", n_free, wrap)
        sections["Confidence"] = wrap(confidence, max_lines=n_free)
        # One line each for the number of other faults and for the command. Of at most three faults,
        # the first ones get a second line if enough lines are free.
        n_free = 8 - sum(map(len, sections.values()))
        fault_texts = [" ".join(fault.values()) for fault in self.faults[: min(3, n_free)]]
        n_hidden = len(self.faults) - len(fault_texts) + self.more_faults
        fault_texts = fault_texts or [NO_FAULT]
        n_extra = n_free - len(fault_texts)
        fault_lines: list[str] = []
        for i, text in enumerate(fault_texts):
            fault_lines += wrap(text, max_lines=1 + (i < n_extra))
        if n_hidden:
            problems_text = f"{'more' if self.faults else 'minor'} problem{'s' * (n_hidden > 1)}"
            fault_lines.append(f"{n_hidden} {problems_text} in {report}")
        else:
            fault_lines.append(f"Details are in {report}")
        sections["Check first"] = fault_lines
        sections["Next"] = [self.command] * bool(self.command)
        return [
            f"{'' if i else title:13}{line}"
            for title, section_lines in sections.items()
            for i, line in enumerate(section_lines)
        ]


def _whole_sentences(text: str, n_lines: int, wrap: Callable[..., list[str]]) -> str:
    """Return as many sentences as fit into the lines, and at least the first one."""
    first, *others = re.split(r"(?<=\.) (?=[A-Z])", text)
    for sentence in others:
        if len(wrap(f"{first} {sentence}")) > n_lines:
            break
        first = f"{first} {sentence}"
    return first


def make_answer(results: Results) -> Answer:
    """Describe the results in sentences."""
    method = results.recommended
    faults = results.differences.get("faults", ())
    severe_faults = [fault for fault in faults if fault["severity"] > 1]
    problems = [fault_in_words(fault) for fault in severe_faults]
    _, _, arguments = results.next_step.partition(": domainwise ")
    command = "" if method.trivial else "model = evaluation.fit()"
    checker = "check_shift(model, X)"
    if arguments:
        command, checker = f"domainwise {arguments}", "domainwise predict"
    watch = f"{checker} reports whether new rows differ from all domains in this table."
    failed_keys = [key for key, reason in results.left_out.items() if reason.startswith("failed")]
    if failed_keys:
        problem = f"These methods failed and have no score: {', '.join(failed_keys)}."
        action = "The error messages are in the notes at the end of the report."
        problems.append({"problem": problem, "action": action})
    first_problems = problems[:MAX_FAULTS]
    return Answer(
        "" if method.trivial else method.label,
        _reason(results),
        _context_text(results),
        _expectation(results),
        *_certainty(results),
        first_problems,
        len(problems) + len(faults) - len(severe_faults) - len(first_problems),
        label_sentence(results),
        validation_sentence(results),
        command,
        "" if method.trivial else watch,
    )


def fault_in_words(fault: dict[str, Any]) -> dict[str, str]:
    """Return a fault as two texts: the problem and its effect, and the action to take."""
    problem = f"{fault['message']} {fault['effect']}".strip()
    return {"problem": problem, "action": fault["action"]}


def _reason(results: Results) -> str:
    """The reason for the recommendation."""
    method, rival, leader = results.recommended, results.rival, results.leader()
    label, show = results.measure.label, results.show
    n_scored, n_domains = len(method.known), results.facts.get("domains", 0)
    total_text = f" of {in_words(n_domains)}" if n_scored < n_domains else ""
    plural_ending = "s" * (max(n_scored, n_domains) > 1)
    domains_text = f"{in_words(n_scored)}{total_text} held-out domain{plural_ending}"
    where_text = f"over {domains_text}"
    if method.trivial:
        restriction = " that predicts rows one by one" * any(r.context for r in results.results)
        second_text = f"; {in_sentence(rival)} is second, with {show(rival.mean)}" if rival else ""
        return (
            f"No method{restriction} is better than always predicting {_constant(results)}, which "
            f"has a mean {label} of {show(method.mean)} {where_text}{second_text}."
        )
    mean_of: Callable[[MethodResult], float] = results.weighted_mean
    other = leader if leader is not method else rival
    if other and not other.trivial and mean_of(method) - mean_of(other) < results.margin:
        advantage = ", and simpler" * (method.cost < other.cost)
        if advantage and 0.0 < 2.0 * method.seconds <= other.seconds:
            advantage += " and at least twice as fast"
        if not advantage and method.worst > other.worst:
            worst_text = f"{show(method.worst)} and {show(other.worst)}"
            advantage = f", and better on the worst domain ({worst_text})"
        means_text = f"mean {label}: {show(method.mean)} and {show(other.mean)}"
        return f"about as good as {in_sentence(other)} on {domains_text} ({means_text}){advantage}."
    if method is max(results.row_by_row, key=lambda result: result.mean):
        mean_of = attrgetter("mean")
    else:
        where_text += ", with less weight for domains with few rows"
    if rival is None:
        return f"the only evaluated method; its mean {label} {where_text} is {show(method.mean)}."
    if rival.trivial:
        return f"best mean {label} {where_text}."
    lead = show(results.measure.sign * (mean_of(method) - mean_of(rival)))
    p_value = compare(method.known, rival.known).p_value
    if method.p_adjusted is not None and rival is results.baseline:
        p_value = method.p_adjusted
    if p_value is None:
        n_common = len(method.known.keys() & rival.known.keys())
        subject = "one domain" if n_common == 1 else f"{in_words(n_common)} domains"
        remark = f"with {subject}, this difference may be due to chance"
    else:
        is_significant = p_value < SIGNIFICANCE_LEVEL
        claim = "is statistically significant" if is_significant else "may be due to chance"
        remark = f"this difference {claim} (p {'' if p_value < 0.001 else '= '}{p_text(p_value)})"
    return f"best mean {label} {where_text}, {lead} better than {in_sentence(rival)}; {remark}."


def _context_text(results: Results) -> str:
    """The gain from predicting all rows of a new domain together; empty if there is no gain."""
    method, show = results.recommended, results.show
    better_methods = [
        r for r in results.results if r.context and r.mean - method.mean > results.margin
    ]
    if method.context or not better_methods:
        return ""
    winner = max(better_methods, key=results.weighted_mean)
    text = (
        f"If you can predict all rows from the next site together, use {in_sentence(winner)}: its "
        f"mean {results.measure.label} is {show(winner.mean)} instead of {show(method.mean)}."
    )
    batches = {kind: means for kind, means in winner.batches.items() if kind != "whole"}
    if not batches:
        return text
    if not winner.holds_up:
        kind = min(batches, key=lambda name: batches[name]["context"] - batches[name]["plain"])
        with_context, without_context = (show(batches[kind][name]) for name in ("context", "plain"))
        scores_text = f"{kind}: {with_context} instead of {without_context}"
        return f"{text} Do not use it for only some of the rows ({scores_text})."
    scores_text = listed([f"{show(means['context'])} ({kind})" for kind, means in batches.items()])
    return f"{text} With only some of the rows, this score is {scores_text}."


def _expectation(results: Results) -> str:
    """The expected score at the next site."""
    method, measure, show = results.recommended, results.measure, results.show
    ends, n = results.next_site, len(method.known)
    constant, comparison = results.find(TRIVIAL), ""
    if constant is not None and not method.trivial:
        comparison = f" Always predicting {_constant(results)} scores {show(constant.mean)}."
    if (rerun := results.differences.get("without_leaks")) and rerun["scores"]:
        best_label = max(rerun["scores"], key=lambda label: rerun["scores"][label])
        columns_text, score_text = listed(rerun["columns"]), show(rerun["scores"][best_label])
        rerun_text = f"Without {columns_text}, the best score is {score_text} ({best_label})."
        comparison = f" {rerun_text}{comparison}"
    if ends is not None:
        low, high = (show(measure.sign * end) for end in ends)
        choice = ""
        if (cost := results.choice_cost) >= 0.1 * results.margin:
            choice = f" The choice of the method itself costs about {show(measure.sign * cost)}."
        return (
            f"{measure.label} between {low} and {high} at the next site, with a probability of "
            f"90 %. The mean over held-out domains is {show(method.mean)}.{choice}{comparison}"
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
    description = "mean of the target" if results.classes is None else "most frequent class"
    return f"the {description} ({next(r.label for r in results.results if r.trivial)})"


def _certainty(results: Results) -> tuple[str, str]:
    """Confidence (low, medium or high), and the reason; the guide to the report states the rule."""
    method, constant, show = results.recommended, results.find(TRIVIAL), results.show
    n, sign, label = len(method.known), results.measure.sign, results.measure.label
    faults = results.differences.get("faults", ())
    leaking_columns = [name for fault in faults if fault["leak"] for name in fault["columns"]]
    if leaking_columns:
        names_text = listed(leaking_columns)
        return "low", f"The scores may be too good, because {names_text} may contain the answer."
    if n < MIN_PAIRS:
        subject = "One domain is" if n == 1 else f"{in_words(n).capitalize()} domains are"
        return "low", f"{subject} not enough to predict the score at the next site reliably."
    pooled = pool_method(results, method)
    if pooled is None or pooled.true_range is None:
        return "medium", "The uncertainty of each domain's score is not known for this scorer."
    claim = "Domains differ" if pooled.differ else "There is no evidence that domains differ"
    low, high = pooled.true_range
    range_text = f"the true {label} at the next site is between {show(sign * low)} and "
    claim = f"{claim}: {range_text}{show(sign * high)} (90 %)."
    if constant is None or method.trivial:
        return "medium" if pooled.differ else "high", claim
    constant_text = f"a constant prediction ({show(constant.mean)})"
    gain_text = f"more than half of the gain over {constant_text}"
    worse_end = low if sign > 0 else -high
    if worse_end >= (method.mean + constant.mean) / 2:
        return "high", f"{claim} At the worse end, {gain_text} remains."
    if worse_end <= constant.mean:
        return "medium", f"{claim} The worse end is no better than {constant_text}."
    return "medium", f"{claim} At the worse end, {gain_text} is lost."


def in_sentence(method: MethodResult) -> str:
    """The name of a method in a sentence, such as "the ensemble with context"."""
    label = method.label[: -len(CONTEXT)] if method.context else method.label
    return PHRASES.get(label, label) + " with context" * method.context


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


def domains_table(results: Results, shown_results: Sequence[MethodResult]) -> TextTable:
    """Scores of ``shown_results`` by domain, and details of the recommended method."""
    method, classes, show = results.recommended, results.facts["classes"], results.show
    target_heading = "target quartiles" if classes is None else "most frequent classes"
    if classes is not None and len(classes) == 2:
        target_heading = f"share of class {classes[1]}"
    headings = ["domain", *(r.label for r in shown_results), "95 %", "seen", "within", "rows"]
    domain_by_name = {domain["name"]: domain for domain in results.differences.get("domains", ())}
    rows = []
    for name in results.hardest_first:
        domain = domain_by_name.get(str(name))
        best_score = max(r.known.get(name, -np.inf) for r in results.results)
        cells = [TextCell(str(name))]
        for r in shown_results:
            is_best, css_class = r.scores[name] == best_score, "outside" * (name == r.worst_domain)
            cells.append(TextCell(show(r.scores[name]), is_best, css_class))
        other_scores = (method.seen.get(name), method.within.get(name))
        texts = [interval(results, results.ends(method, name)), *map(show, other_scores)]
        texts += [f"{domain['rows']:,}", _target_text(domain, classes)] if domain else ["–", "–"]
        rows.append([*cells, *map(TextCell, texts)])
    row_kinds = ["worst" if name == results.worst_domain else "" for name in results.hardest_first]
    return TextTable([*headings, target_heading], rows, row_kinds).without_empty_columns()


def _target_text(domain: dict[str, Any], classes: list[Any] | None) -> str:
    """Quartiles of the target in a domain, or class frequencies."""
    if classes is None:
        is_integer = all(value == round(value) for value in domain["target"])
        return " / ".join(f"{v:.4g}" if is_integer else f"{v:#.4g}" for v in domain["target"])
    class_counts = domain["classes"]
    if len(classes) == 2:
        return percent(class_counts[1] / domain["rows"])
    frequent_classes = sorted(zip(class_counts, map(str, classes), strict=True), reverse=True)[:3]
    return ", ".join(f"{c}: {percent(n / domain['rows'])}" for n, c in frequent_classes if n)


def label_sentence(results: Results) -> str:
    """The gain from labels at the next site; empty if it is unknown."""
    scores = {gain["n_labels"]: results.measure.sign * gain["score"] for gain in results.label_gain}
    if not scores:
        return ""
    zero, *counts = scores
    label, show, margin = results.measure.label, results.show, results.margin
    best_score, initial_score, n_max = max(scores[n] for n in counts), scores[zero], counts[-1]
    source_text = " (known values of the target) from the next site"
    if best_score - initial_score < margin:
        scores_text = f"{show(initial_score)} without labels and {show(scores[n_max])} with {n_max}"
        worse = initial_score - scores[n_max] >= margin
        effect = "might make predictions worse" if worse else "would hardly help"
        return f"Labels{source_text} {effect}: the expected {label} is {scores_text}."
    # The smallest number of labels with about the best score.
    n_enough = next(n for n in counts if best_score - scores[n] < margin)
    n_first = counts[0] if scores[counts[0]] - initial_score >= margin else n_enough
    text = f"With {n_first} labels{source_text}, the expected {label} is {show(scores[n_first])} "
    text += f"instead of {show(initial_score)}"
    text += f"; with {n_enough}, it is {show(scores[n_enough])}" * (n_enough != n_first)
    return text + (". More labels add little." if n_enough < n_max else ".")


def site_columns_sentences(results: Results) -> dict[str, str]:
    """What columns that describe domains change, and whether to drop them; empty if unknown."""
    comparison, show, sign = results.site_columns, results.show, results.measure.sign
    if comparison is None:
        return {}
    method = results.find(comparison.method) or results.recommended
    names_text, label = listed(comparison.columns), results.measure.label
    shown_scores = (comparison.score_with, comparison.score_without)
    with_text, without_text = (show(sign * score) for score in shown_scores)
    effect = f"The mean {label} of {in_sentence(method)} is {with_text} with {names_text}, and "
    effect += f"{without_text} without"
    if comparison.error is not None:
        gain, error = (show(sign * abs(x)) for x in (comparison.gain, comparison.error))
        effect += f" (a difference of {gain}, with a standard error of {error})"
    action = f"At a new site, it is safer to use {names_text}, if values are similar there."
    if not comparison.safer_with:
        drop_option = f"--drop {shlex.quote(','.join(comparison.columns))}"
        action = f"At a new site, it is safer not to use {names_text}: evaluate again with "
        action += f"{drop_option}."
    return {"effect": f"{effect}.", "action": action}


def validation_sentence(results: Results) -> str:
    """The number of rows needed to validate the model at the next site; empty if unknown."""
    method, classes = results.recommended, results.facts["classes"]
    if method.trivial or not has_outputs(results, method):
        return ""
    size = validation_size(results, method)
    goal, events_text = "RMSE within a factor of 1.2 and the slope within ±0.3", ""
    if size.events is not None:
        goal = "O/E within a factor of 1.2, the calibration slope within ±0.3 and AUC within ±0.05"
        subject = f"class {classes[1]}" if len(classes) == 2 else "the rarest class"
        events_text = f" (about {size.events:,} of {subject})"
    return (
        f"To know {goal} (95 %) at the next site, collect about {rounded(size.rows):,} rows with "
        f"known values of the target{events_text}."
    )


def rounded(number: int) -> int:
    """Round a number up to three significant digits.

    >>> rounded(1526), rounded(84)
    (1530, 84)
    """
    unit = 10 ** max(len(str(number)) - 3, 0)
    return -(-number // unit) * unit


def difference_sentence(results: Results) -> str:
    """A sentence about the columns that distinguish a domain from the others."""
    differences = results.differences
    columns = differences["columns"]
    names = [domain["name"] for domain in differences["domains"]]
    descriptions = [
        f"{c['name']} ({names_of(names[c['tells_at']])}, AUC {c['tells']:.2f})" for c in columns
    ]
    n_identifying = sum(column["tells"] >= IDENTIFYING_AUC for column in columns)
    verb, pronoun = "clearly distinguishes", "its"
    if n_identifying > 1:
        verb, pronoun = "each clearly distinguish", "their"
    claim = f"{verb} one domain from all others, by {pronoun} values or by which values are missing"
    if not n_identifying:
        return f"No single column {claim}; the best one is {descriptions[0]}."
    share_text = f"{n_identifying} of {len(columns) + differences['others']} columns"
    return f"{share_text} {claim}: {listed(descriptions[:n_identifying])}."


def importance_sentences(results: Results) -> list[str]:
    """Sentences about the most important column, and about columns that could be dropped."""
    method, importance = results.recommended, results.recommended.importance
    if not importance:
        return []
    top_column = max(importance, key=lambda name: importance[name])
    change_verb = "decreases" if results.measure.sign > 0 else "increases"
    loss_text = results.show(results.measure.sign * importance[top_column])
    min_importance = results.margin / 2
    beginning = "The most important column on held-out domains is"
    if importance[top_column] < min_importance:
        beginning = "No single column is important on held-out domains; the most important one is"
    sentences = [
        f"{beginning} {top_column}: if its values are shuffled, the {results.measure.label} of "
        f"{in_sentence(method)} {change_verb} by {loss_text}."
    ]
    faulty_columns = {
        name for fault in results.differences.get("faults", ()) for name in fault.get("columns", ())
    }
    unused_columns = [
        column["name"]
        for column in results.differences["columns"]
        if column["tells"] >= IDENTIFYING_AUC
        and column["name"] not in faulty_columns
        and importance.get(column["name"], np.inf) < min_importance
    ]
    if unused_columns:
        advice = f"Consider dropping {listed(unused_columns)}: {in_sentence(method)} hardly uses "
        pronouns = "it, and its" if len(unused_columns) == 1 else "them, and their"
        sentences.append(f"{advice}{pronouns} values may be different at the next site.")
    return sentences
