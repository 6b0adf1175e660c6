"""The result of an evaluation in sentences; each function makes one statement from the results.

A statement that does not apply is an empty string.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from domainwise.base.messages import listed
from domainwise.evaluation.plots.style import number_format
from domainwise.evaluation.results import UNKNOWN, MethodResult, Results
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

    limits: str  #: what was left out to save time
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
    methods: str  #: paragraph about the methods of the evaluation, for a publication

    def sentences(self) -> list[str]:
        """All sentences, in the order of the report."""
        recommendation = f"Use {self.take}: {self.reason}" if self.take else self.reason
        confidence = f"Confidence: {self.certainty}. {self.certain}"
        problems = [f"Check first: {' '.join(fault.values()).strip()}" for fault in self.faults]
        command = f"Next: {self.command}" if self.command else ""
        texts = (recommendation, self.context, f"Expect {self.expect}", confidence, *problems)
        texts = (self.limits, *texts, self.labels, self.validation, command)
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
    method, faults = results.recommended, results.differences.get("faults", ())
    severe_faults = [fault for fault in faults if fault["severity"] > 1]
    problems = [fault_in_words(fault) for fault in severe_faults]
    _, _, arguments = results.next_step.partition(": domainwise ")
    command, checker = "model = evaluation.fit()", "check_shift(model, X)"
    if arguments:
        command, checker = f"domainwise {arguments}", "domainwise predict"
    watch = f"{checker} reports whether new rows differ from all domains in this table."
    failed_keys = [key for key, reason in results.left_out.items() if reason.startswith("failed")]
    if failed_keys:
        problem = f"These methods failed and have no score: {', '.join(failed_keys)}."
        action = "The error messages are in the notes at the end of the report."
        problems.append({"problem": problem, "action": action})
    first_problems = problems[:MAX_FAULTS]
    certainty, certain = confidence(results)
    return Answer(
        limits(results),
        "" if method.trivial else method.label,
        recommendation(results),
        context_gain(results),
        expectation(results),
        certainty,
        certain,
        first_problems,
        len(problems) + len(faults) - len(severe_faults) - len(first_problems),
        label_sentence(results),
        validation_sentence(results),
        "" if method.trivial else command,
        "" if method.trivial else watch,
        methods_paragraph(results),
    )


# Names and numbers --------------------------------------------------------------------------------


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


def interval(ends: tuple[float, float] | None) -> str:
    """An interval of displayed scores as text; a dash if it is unknown or empty."""
    low, high = ends or UNKNOWN
    return " to ".join(map(number_format([], [(low, high)]), (low, high))) if low < high else "–"


def score_format(results: Results) -> Callable[[float], str]:
    """Return a function that formats scores, as displayed, with the digits that are supported."""
    method = results.recommended
    scores = [results.measure.shown(score) for score in method.known.values()]
    return number_format(scores, [results.ends(method, name) for name in method.known])


def fault_in_words(fault: dict[str, Any]) -> dict[str, str]:
    """Return a fault as two texts: the problem and its effect, and the action to take."""
    problem = f"{fault['message']} {fault['effect']}".strip()
    return {"problem": problem, "action": fault["action"]}


def rounded(number: int) -> int:
    """Round a number up to three significant digits.

    >>> rounded(1526), rounded(84)
    (1530, 84)
    """
    unit = 10 ** max(len(str(number)) - 3, 0)
    return -(-number // unit) * unit


def _constant(results: Results) -> str:
    """Description of the constant prediction, with its name in tables."""
    description = "mean of the target" if results.classes is None else "most frequent class"
    return f"the {description} ({next(r.label for r in results.results if r.trivial)})"


def _held_out(results: Results) -> str:
    """The domains that were scored, such as "seven of eight held-out domains"."""
    n_scored, n_domains = len(results.recommended.known), results.facts.get("domains", 0)
    total_text = f" of {in_words(n_domains)}" * (n_scored < n_domains)
    plural_ending = "s" * (max(n_scored, n_domains) > 1)
    return f"{in_words(n_scored)}{total_text} held-out domain{plural_ending}"


# The first screen ---------------------------------------------------------------------------------


def limits(results: Results) -> str:
    """What was left out to save time: rows, folds, and fits after an interruption."""
    facts, n_scored = results.facts, sum(results.row_counts.values())
    sentences = []
    if "quick" in facts:
        sentences.append("Quick run: evaluate again without the quick option before you decide.")
    if facts.get("rows", 0) < facts.get("rows_given", 0):
        sentences.append(
            f"Methods were trained on {facts['rows']:,} of {facts['rows_given']:,} rows and scored "
            f"on {n_scored:,} rows."
        )
    return " ".join([*sentences, facts.get("stopped", "")]).strip()


def recommendation(results: Results) -> str:
    """The reason for the recommendation."""
    method, rival, leader = results.recommended, results.rival, results.leader()
    other = leader if leader is not method else rival
    label, mean = results.measure.label, results.show(method.mean)
    where_text = f"over {_held_out(results)}"
    if method is not max(results.row_by_row, key=lambda result: result.mean):
        where_text += ", with less weight for domains with few rows"
    if method.trivial:
        return no_better_method(results)
    lead = np.inf if other is None else results.weighted_mean(method) - results.weighted_mean(other)
    if other and not other.trivial and lead < results.margin:
        return tie(results, other)
    if rival is None:
        return f"the only evaluated method; its mean {label} {where_text} is {mean}."
    if rival.trivial:
        return f"best mean {label} {where_text}."
    return f"best mean {label} {where_text}, {lead_over(results, rival)}."


def no_better_method(results: Results) -> str:
    """The constant prediction is as good as all methods."""
    method, rival, show = results.recommended, results.rival, results.show
    restriction = " that predicts rows one by one" * any(r.context for r in results.results)
    second_text = f"; {in_sentence(rival)} is second, with {show(rival.mean)}" if rival else ""
    return (
        f"No method{restriction} is better than always predicting {_constant(results)}, which has "
        f"a mean {results.measure.label} of {show(method.mean)} over {_held_out(results)}"
        f"{second_text}."
    )


def tie(results: Results, other: MethodResult) -> str:
    """The recommended method is about as good as another, and why it is preferred."""
    method, show = results.recommended, results.show
    reasons = []
    if method.key == "linear":
        reasons.append("it is a linear model")
    if other.key.startswith("ensemble"):
        reasons.append("it is one model instead of an average of several")
    if 0.0 < 2.0 * method.seconds <= other.seconds:
        reasons.append(f"it took {method.seconds:.3g} s instead of {other.seconds:.3g} s")
    if not reasons and method.worst > other.worst:
        worst_text = f"{show(method.worst)} and {show(other.worst)}"
        reasons.append(f"it is better on the worst domain ({worst_text})")
    preference = f"; it is preferred because {listed(reasons)}" if reasons else ""
    return (
        f"about as good as {in_sentence(other)} on {_held_out(results)} (mean "
        f"{results.measure.label}: {show(method.mean)} and {show(other.mean)}){preference}."
    )


def lead_over(results: Results, rival: MethodResult) -> str:
    """By how much the recommended method is better than another, and whether by chance."""
    method = results.recommended
    is_best = method is max(results.row_by_row, key=lambda result: result.mean)
    difference = method.mean - rival.mean
    if not is_best:
        difference = results.weighted_mean(method) - results.weighted_mean(rival)
    p_value = compare(method.known, rival.known).p_value
    if method.p_adjusted is not None and rival is results.baseline:
        p_value = method.p_adjusted
    n_common = len(method.known.keys() & rival.known.keys())
    remark = f"with {in_words(n_common)} domain{'s' * (n_common > 1)}, this difference may be due "
    remark += "to chance"
    if p_value is not None:
        is_significant = p_value < SIGNIFICANCE_LEVEL
        claim = "is statistically significant" if is_significant else "may be due to chance"
        remark = f"this difference {claim} (p {'' if p_value < 0.001 else '= '}{p_text(p_value)})"
    lead = results.show(results.measure.sign * difference)
    return f"{lead} better than {in_sentence(rival)}; {remark}"


def context_gain(results: Results) -> str:
    """The gain from predicting all rows of a new domain together."""
    method, show = results.recommended, results.show
    better_methods = [
        r for r in results.compared if r.context and r.mean - method.mean > results.margin
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


def expectation(results: Results) -> str:
    """The expected score at the next site, and what to compare it with."""
    statements = (next_site(results), cost_of_choice(results), without_leaks(results))
    return " ".join(filter(None, (*statements, constant_score(results))))


def next_site(results: Results) -> str:
    """The prediction interval for the score measured at the next site."""
    method, measure, text = results.recommended, results.measure, score_format(results)
    mean, n = text(measure.shown(method.mean)), len(method.known)
    if results.next_site is not None:
        low, high = map(text, results.next_site)
        return (
            f"{measure.label} between {low} and {high} at the next site, with a probability of "
            f"90 % (prediction interval). The mean over held-out domains is {mean}."
        )
    if n < 2:
        return f"{measure.label} {mean} on average. One scored domain has no prediction interval."
    low, *_, high = map(text, sorted(map(measure.shown, method.known.values())))
    return (
        f"{measure.label} {mean} on average. A 90 % prediction interval cannot be computed from "
        f"{in_words(n)} domains: the score at the next site is between {low} and {high} with a "
        f"probability of {({2: 'one third', 3: 'one half'})[n]}."
    )


def cost_of_choice(results: Results) -> str:
    """By how much the score of the best of several methods is too good."""
    if (cost := results.choice_cost) < 0.1 * results.margin:
        return ""
    cost_text = results.show(results.measure.sign * cost)
    return f"The choice of the method itself costs about {cost_text}."


def without_leaks(results: Results) -> str:
    """The best score without the columns that may contain the answer."""
    rerun = results.differences.get("without_leaks")
    if not rerun or not rerun["scores"]:
        return ""
    label = max(rerun["scores"], key=lambda name: rerun["scores"][name])
    score_text = results.show(rerun["scores"][label])
    return f"Without {listed(rerun['columns'])}, the best score is {score_text} ({label})."


def constant_score(results: Results) -> str:
    """The score of the constant prediction."""
    constant = results.find(TRIVIAL)
    if constant is None or results.recommended.trivial:
        return ""
    score_text = score_format(results)(results.measure.shown(constant.mean))
    return f"Always predicting {_constant(results)} scores {score_text}."


def confidence(results: Results) -> tuple[str, str]:
    """Confidence (low, medium or high), and the reason; the guide to the report states the rule."""
    method, constant = results.recommended, results.find(TRIVIAL)
    text, sign, n = score_format(results), results.measure.sign, len(method.known)
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
    low, high = pooled.true_range
    claim = (
        f"{'Domains differ' if pooled.differ else 'There is no evidence that domains differ'}: the "
        f"true {results.measure.label} at the next site is between {text(low)} and {text(high)} "
        "(90 %)."
    )
    if constant is None or method.trivial:
        return "medium" if pooled.differ else "high", claim
    constant_text = f"a constant prediction ({text(results.measure.shown(constant.mean))})"
    worse_end = low if sign > 0 else -high
    if worse_end >= (method.mean + constant.mean) / 2:
        gain_text = f"more than half of the gain over {constant_text} remains"
        return "high", f"{claim} At the worse end, {gain_text}."
    if worse_end <= constant.mean:
        return "medium", f"{claim} The worse end is no better than {constant_text}."
    gain_text = f"more than half of the gain over {constant_text} is lost"
    return "medium", f"{claim} At the worse end, {gain_text}."


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
    more_text = f"; with {n_enough}, it is {show(scores[n_enough])}" * (n_enough != n_first)
    return (
        f"With {n_first} labels{source_text}, the expected {label} is {show(scores[n_first])} "
        f"instead of {show(initial_score)}{more_text}."
        f"{' More labels add little.' * (n_enough < n_max)}"
    )


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


# The sections below -------------------------------------------------------------------------------


def rule(results: Results) -> str:
    """The full rule by which a method is recommended."""
    margin_text = f"{results.margin:.3g}"
    return (
        "Methods that predict rows one by one are ranked by their mean score over held-out "
        "domains, in which domains with few rows have less weight, because their scores are "
        f"uncertain. Methods whose mean is worse than the best by less than {margin_text} (0.01, "
        "or 2 % of the error of the best baseline), and whose worst score is worse than the worst "
        "of the best method by less than three times as much, are considered equally good. Of "
        "these, the one with the lowest computational cost is recommended, in this order: "
        "constant, linear model, SVM, DCM and other projections, boosting, InvariantRidge, "
        "InvariantSVC or InvariantSVR, ensemble."
    )


def folds(results: Results, noun: str = "domain") -> str:
    """How domains were held out."""
    n_domains, n_splits = len(results.domains), len(results.recommended.parameters)
    if n_splits in (0, n_domains):
        return f"Each of the {n_domains} {noun}s was held out in turn"
    return f"The {n_domains} {noun}s were held out in {in_words(n_splits)} groups"


def methods_paragraph(results: Results) -> str:
    """The methods of the evaluation in the words of TRIPOD-Cluster, for a publication."""
    facts, measure, method = results.facts, results.measure, results.recommended
    n_scored, labels = sum(results.row_counts.values()), [r.label for r in results.results]
    pooled, interval_text = pool_method(results, method), ""
    if pooled is not None and pooled.true_range is not None:
        text, (low, high) = score_format(results), pooled.true_range
        tau_low, tau_high = pooled.tau_interval or UNKNOWN
        interval_text = (
            f" The pooled {measure.label} was {text(pooled.mean)}; heterogeneity between sites was "
            f"τ = {pooled.tau:.2f} (90 % confidence interval {tau_low:.2f} to {tau_high:.2f}, "
            f"{pooled.scale} scale), and the 90 % prediction interval for the true score at a new "
            f"site was {text(low)} to {text(high)}."
        )
    calibration = "observed-to-expected ratio, calibration intercept and calibration slope"
    if results.classes is None:
        calibration = "bias and calibration slope"
    return (
        "Performance at new sites was estimated by internal-external cross-validation. "
        f"{folds(results, 'site')}: models were developed on the others, and assessed on those "
        "held out. Preprocessing and hyperparameters were "
        "chosen with the development sites only, by holding out sites within them. Models were "
        f"developed on {facts.get('rows', 0):,} of {facts.get('rows_given', 0):,} rows, and "
        f"performance was assessed on {n_scored:,} rows. {in_words(len(labels)).capitalize()} "
        f"method{'s' * (len(labels) > 1)} ({', '.join(labels)}) were compared by {measure.label}; "
        f"{method.label} was selected. Performance was computed for each site, with a 95 % "
        "interval from resampled rows, and pooled over sites by random-effects meta-analysis "
        "(restricted maximum likelihood; Hartung-Knapp interval for the mean and Q-profile "
        f"interval for the standard deviation τ between sites).{interval_text} Calibration was "
        f"assessed in each site by {calibration}, and pooled in the same way."
    )


def difference_sentence(results: Results) -> str:
    """The columns that distinguish a domain from the others."""
    differences = results.differences
    columns = differences["columns"]
    names = [domain["name"] for domain in differences["domains"]]
    descriptions = [
        f"{c['name']} ({names_of(names[c['tells_at']])}, AUC {c['tells']:.2f})" for c in columns
    ]
    n_identifying = sum(column["tells"] >= IDENTIFYING_AUC for column in columns)
    if not n_identifying:
        return (
            "No single column clearly distinguishes one domain from all others; the best one is "
            f"{descriptions[0]}."
        )
    n_columns = len(columns) + differences["others"]
    return (
        f"{n_identifying} of {n_columns} columns clearly distinguish one domain from all others, "
        "by values or by which values are missing: "
        f"{listed(descriptions[:n_identifying])}."
    )


def importance_sentence(results: Results) -> str:
    """The most important column."""
    method, importance = results.recommended, results.recommended.importance
    if not importance:
        return ""
    column = max(importance, key=lambda name: importance[name])
    subject = "The most important column on held-out domains is"
    if importance[column] < results.margin / 2:
        subject = "No single column is important on held-out domains; the most important one is"
    verb = "decreases" if results.measure.sign > 0 else "increases"
    loss_text = results.show(results.measure.sign * importance[column])
    return (
        f"{subject} {column}: if its values are shuffled, the {results.measure.label} of "
        f"{in_sentence(method)} {verb} by {loss_text}."
    )


def unused_columns(results: Results) -> str:
    """Columns that identify a domain, and that the recommended method hardly uses."""
    importance = results.recommended.importance
    faults = results.differences.get("faults", ())
    faulty_columns = {name for fault in faults for name in fault.get("columns", ())}
    names = [
        column["name"]
        for column in results.differences["columns"]
        if column["tells"] >= IDENTIFYING_AUC
        and column["name"] not in faulty_columns
        and importance.get(column["name"], np.inf) < results.margin / 2
    ]
    if not names:
        return ""
    return (
        f"Consider dropping {listed(names)}: {in_sentence(results.recommended)} hardly uses "
        f"{'it' if len(names) == 1 else 'them'}, and the values may be different at the next site."
    )
