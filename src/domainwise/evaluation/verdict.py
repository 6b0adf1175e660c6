"""The result of an evaluation in sentences; each function makes one statement from the results.

A statement that does not apply is an empty string. The texts are in ``texts.toml``.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from domainwise.base.messages import listed, load_texts
from domainwise.evaluation.plots.style import number_format
from domainwise.evaluation.results import UNKNOWN, MethodResult, Results
from domainwise.evaluation.sites import has_outputs, pool_method, validation_size
from domainwise.held_out.scoring.statistics import MIN_PAIRS, compare, in_words, p_text
from domainwise.models.registry import CONTEXT, TRIVIAL

#: A difference with a smaller p-value is called statistically significant.
SIGNIFICANCE_LEVEL = 0.05
#: Maximum number of problems on the first screen of the report, and of characters of its lines in
#: the terminal.
MAX_FAULTS, WIDTH = 5, 80
#: Minimum AUC of a column that distinguishes a domain from the others.
IDENTIFYING_AUC = 0.8
TEXTS: dict[str, Any] = load_texts("domainwise.evaluation", "texts.toml")
#: Names of methods in sentences, if they differ from the labels in tables.
PHRASES: dict[str, str] = TEXTS["phrases"]
NO_FAULT = TEXTS["no_fault"]


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

    def lines(self, report: str | None = "the report", n_lines: int = 10) -> list[str]:
        """The sentences in at most ``n_lines`` lines; only names of files may be wider than 80.

        If ``report`` is None, details and limits are in notes above these lines.

        Recommendation, outlook, confidence and the first problem have as many whole clauses as fit;
        up to two other problems follow. A clause is cut only if there is no room for the first one.
        """
        wrap = partial(textwrap.wrap, width=WIDTH - 13, placeholder=" …", break_on_hyphens=False)
        recommendation = f"{self.take}: {self.reason}" if self.take else self.reason
        faults = [" ".join(fault.values()) for fault in self.faults[:3]] or [NO_FAULT]
        texts = [recommendation, self.expect, f"{self.certainty}. {self.certain}", *faults]
        clauses = [re.split(r"(?<=[.;]) ", text) for text in texts]
        sections = [
            wrap(parts[0], max_lines=n) for parts, n in zip(clauses, (3, 3, 1, 1), strict=False)
        ]
        sections += [[]] * (len(faults) - 1)
        # A command on two lines can be pasted. Options stay with their values, and names in quotes
        # stay on one line.
        joined = re.sub(r"( --?\w+) ", "\\1\xa0", self.command)
        command = wrap(joined, width=WIDTH - 15, break_long_words=False)
        if "'" in self.command:
            command = [self.command]
        command = " \\\n".join(command).replace("\xa0", " ").splitlines()
        limits = wrap(self.limits, max_lines=1) if report else []
        # One line is for the number of other problems.
        n_text = n_lines - 1 - len(command) - len(limits)
        others = range(3, len(clauses))
        first = [*((i, 1) for i in range(4)), (2, 2)]  # the confidence with its reason
        for i, n_most in [*first, *((i, None) for i in (0, 2, 1, *others))]:
            for n in range(len(clauses[i][:n_most])):
                longer = wrap(re.sub(";$", ".", " ".join(clauses[i][: n + 1])))
                if sum(map(len, sections)) - len(sections[i]) + len(longer) <= n_text:
                    sections[i] = longer
        n_hidden = len(self.faults) - bool(self.faults) * sum(map(bool, sections[3:]))
        n_hidden += self.more_faults
        problems = f"{'more' if self.faults else 'minor'} problem{'s' * (n_hidden > 1)}"
        last = f"{n_hidden} {problems} in" if n_hidden else "Details are in"
        checks = [*chain(*sections[3:]), f"{last} {report or 'the notes above'}"]
        titles = ("Limits", "Recommended", "Expect", "Confidence", "Check first", "Next")
        return [
            f"{'' if i else title:13}{line}"
            for title, lines in zip(titles, (limits, *sections[:3], checks, command), strict=True)
            for i, line in enumerate(lines)
        ]


def make_answer(results: Results) -> Answer:
    """Describe the results in sentences."""
    method, faults = results.recommended, results.differences.get("faults", ())
    severe_faults = [fault for fault in faults if fault["severity"] > 1]
    problems = [fault_in_words(fault) for fault in severe_faults]
    _, _, arguments = results.next_step.partition(": domainwise ")
    command, checker = "model = evaluation.fit()", "check_shift(model, X)"
    if arguments:
        command, checker = f"domainwise {arguments}", "domainwise predict"
    watch = TEXTS["watch"].format(checker=checker)
    failed_keys = [key for key, reason in results.left_out.items() if reason.startswith("failed")]
    if failed_keys:
        problem = TEXTS["failed"].format(names=", ".join(failed_keys))
        problems.append({"problem": problem, "action": TEXTS["failed_action"]})
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


def score_format(results: Results) -> Callable[[float], str]:
    """Return a function that formats scores, as displayed, with the digits that are supported."""
    method = results.recommended
    scores = [results.measure.shown(score) for score in method.known.values()]
    return number_format(scores, [results.ends(method, name) for name in method.known])


def interval(results: Results, ends: tuple[float, float] | None) -> str:
    """An interval of displayed scores as text; a dash if it is unknown or empty."""
    low, high = ends or UNKNOWN
    return " to ".join(map(score_format(results), (low, high))) if low < high else "–"


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


def say(key: str, results: Results, /, **values: object) -> str:
    """Insert values into a sentence of ``texts.toml``, which also names the common values."""
    method = results.recommended
    common_values = {
        "label": results.measure.label,
        "method": in_sentence(method),
        "held_out": _held_out(results),
        "mean": results.show(method.mean),
        "n_rows": results.facts.get("rows", 0),
        "n_given": results.facts.get("rows_given", 0),
        "n_scored": results.n_scored,
    }
    return TEXTS[key].format(**{**common_values, **values})


def limits(results: Results) -> str:
    """What was left out to save time: rows, folds, and fits after an interruption."""
    facts = results.facts
    sentences = [facts["quick"]] if "quick" in facts else []
    if not sentences and facts.get("rows", 0) < facts.get("rows_given", 0):
        sentences.append(say("rows", results))
    if names := [r.label for r in results.results if r.n_rows < results.best.n_rows]:
        sentences.append(say("fewer_rows", results, names=listed(names)))
    return " ".join([*sentences, facts.get("stopped", "")]).strip()


def recommendation(results: Results) -> str:
    """The reason for the recommendation."""
    method, rival, leader = results.recommended, results.rival, results.leader()
    other = leader if leader is not method else rival
    if method.trivial:
        return no_better_method(results)
    lead = np.inf if other is None else results.weighted_mean(method) - results.weighted_mean(other)
    if other and not other.trivial and lead < results.margin:
        return tie(results, other)
    if rival is not None and not rival.trivial:
        return lead_over(results, rival)
    weighted = "" if _has_best_mean(results) else TEXTS["weighted"]
    return say("only_method" if rival is None else "best", results, weighted=weighted)


def _has_best_mean(results: Results) -> bool:
    return results.recommended is max(results.row_by_row, key=lambda result: result.mean)


def no_better_method(results: Results) -> str:
    """The constant prediction is as good as all methods."""
    rival, second = results.rival, ""
    if rival is not None:
        score = results.show(rival.mean)
        second = say("second", results, rival=in_sentence(rival), score=score)
    restriction = " that predicts rows one by one" * any(r.context for r in results.results)
    values = {"restriction": restriction, "constant": _constant(results), "second": second}
    return say("no_better_method", results, **values)


def tie(results: Results, other: MethodResult) -> str:
    """The recommended method is about as good as another, and why it is preferred."""
    method, show, reasons = results.recommended, results.show, []
    if method.key == "linear":
        reasons.append(TEXTS["linear"])
    elif other.key.startswith("ensemble"):
        reasons.append(TEXTS["single"])
    if 0.0 < 2.0 * method.seconds <= other.seconds:
        seconds = {"seconds": method.seconds, "other_seconds": other.seconds}
        reasons.append(say("faster", results, **seconds))
    if not reasons and method.worst > other.worst:
        scores = {"worst": show(method.worst), "other_worst": show(other.worst)}
        reasons.append(say("better_worst", results, **scores))
    preference = say("preference", results, reasons=listed(reasons)) if reasons else ""
    values = {"other": in_sentence(other), "other_mean": show(other.mean)}
    return say("tie", results, preference=preference, **values)


def lead_over(results: Results, rival: MethodResult) -> str:
    """By how much the recommended method is better than another, and whether by chance."""
    method, weighted, mean_of = results.recommended, TEXTS["weighted"], results.weighted_mean
    difference = mean_of(method) - mean_of(rival)
    if _has_best_mean(results):
        difference, weighted = method.mean - rival.mean, ""
    p_value, adjusted = compare(method.known, rival.known).p_value, ""
    if method.p_adjusted is not None and rival is results.baseline:
        adjusted = "adjusted " * (method.p_adjusted != p_value)
        p_value = method.p_adjusted
    n = len(method.known.keys() & rival.known.keys())
    remark = say("lead_untested", results, n=in_words(n), s="s" * (n > 1))
    if p_value is not None:
        is_significant = p_value < SIGNIFICANCE_LEVEL
        claim = "is statistically significant" if is_significant else "may be due to chance"
        p = p_text(p_value) if p_value < 0.001 else f"= {p_text(p_value)}"
        remark = say("lead_tested", results, claim=claim, p=f"{adjusted}p {p}")
    values = {"lead": results.show(results.measure.sign * difference), "remark": remark}
    return say("lead", results, weighted=weighted, rival=in_sentence(rival), **values)


def context_gain(results: Results) -> str:
    """The gain from predicting all rows of a new domain together."""
    method, show, parts = results.recommended, results.show, ""
    better_methods = [
        r for r in results.compared if r.context and r.mean - method.mean > results.margin
    ]
    if method.context or not better_methods:
        return ""
    winner = max(better_methods, key=results.weighted_mean)
    batches = {kind: means for kind, means in winner.batches.items() if kind != "whole"}
    if batches and winner.holds_up:
        texts = [f"{show(means['context'])} ({kind})" for kind, means in batches.items()]
        parts = say("context_parts", results, scores=listed(texts))
    elif batches:
        kind = min(batches, key=lambda name: batches[name]["context"] - batches[name]["plain"])
        score, plain = (show(batches[kind][name]) for name in ("context", "plain"))
        parts = say("context_worse", results, kind=kind, score=score, plain=plain)
    values = {"winner": in_sentence(winner), "score": show(winner.mean), "parts": parts}
    return say("context", results, **values)


def expectation(results: Results) -> str:
    """The expected score at the next site, and what to compare it with."""
    statements = (next_site(results), cost_of_choice(results), without_leaks(results))
    return " ".join(filter(None, (*statements, constant_score(results))))


def next_site(results: Results) -> str:
    """The prediction interval for the score measured at the next site."""
    method, measure, text = results.recommended, results.measure, score_format(results)
    n, scores = len(method.known), sorted(map(measure.shown, method.known.values()))
    low, high = map(text, results.next_site or (scores[0], scores[-1]))
    values = {"rounded_mean": text(measure.shown(method.mean)), "low": low, "high": high}
    if results.next_site is not None or n < 2:
        return say("one_site" if n < 2 else "next_site", results, **values)
    probability = {2: "one third", 3: "one half"}[n]
    return say("few_sites", results, n=in_words(n), probability=probability, **values)


def cost_of_choice(results: Results) -> str:
    """By how much the score of the best of several methods is too good."""
    cost = results.choice_cost
    if cost < 0.1 * results.margin:
        return ""
    return say("choice", results, cost=results.show(results.measure.sign * cost))


def without_leaks(results: Results) -> str:
    """The best score without the columns that may contain the answer."""
    rerun = results.differences.get("without_leaks")
    if not rerun or not rerun["scores"]:
        return ""
    constant = results.find(TRIVIAL)  # uses no columns
    scores = rerun["scores"] | ({} if constant is None else {constant.label: constant.mean})
    name = max(scores, key=lambda label: scores[label])
    score = results.show(scores[name])
    return say("without_leaks", results, columns=listed(rerun["columns"]), score=score, name=name)


def constant_score(results: Results) -> str:
    """The score of the constant prediction."""
    constant = results.find(TRIVIAL)
    if constant is None or results.recommended.trivial:
        return ""
    score = score_format(results)(results.measure.shown(constant.mean))
    return say("constant_score", results, constant=_constant(results), score=score)


def confidence(results: Results) -> tuple[str, str]:
    """Confidence (low, medium or high), and the reason; the guide to the report states the rule."""
    method, constant, sign = results.recommended, results.find(TRIVIAL), results.measure.sign
    text, n, claim = score_format(results), len(method.known), difference(results)
    faults = results.differences.get("faults", ())
    if columns := [name for fault in faults if fault["leak"] for name in fault["columns"]]:
        reason = say("leak", results, columns=listed(columns))
        return "low", f"{reason} {claim}".strip()
    if n < MIN_PAIRS:
        domains = "One domain is" if n == 1 else f"{in_words(n).capitalize()} domains are"
        reason = say("too_few", results, domains=domains)
        return "low", f"{reason} {claim}".strip()
    pooled = pool_method(results, method)
    if pooled is None or pooled.true_range is None:
        return "medium", TEXTS["unknown_errors"]
    if constant is None or method.trivial:
        return "medium" if pooled.differ else "high", claim
    worse_end, gain = pooled.true_range[0] if sign > 0 else -pooled.true_range[1], "gain_lost"
    if worse_end >= (method.mean + constant.mean) / 2:
        gain = "gain_remains"
    elif worse_end <= constant.mean:
        gain = "no_gain"
    gain_text = say(gain, results, score=text(results.measure.shown(constant.mean)))
    return "high" if gain == "gain_remains" else "medium", f"{claim} {gain_text}"


def difference(results: Results) -> str:
    """Whether domains differ, and the range of the true score at the next site, if it is known."""
    pooled, text = pool_method(results, results.recommended), score_format(results)
    if pooled is None or pooled.differ is None:
        return ""
    if pooled.true_range is None:
        name = "differ_unknown_range" if pooled.differ else "difference_unknown"
        return say(name, results, n=in_words(pooled.n_sites))
    low, high = map(text, pooled.true_range)
    return say("differ" if pooled.differ else "no_evidence", results, low=low, high=high)


def label_sentence(results: Results) -> str:
    """The gain from labels at the next site; empty if it is unknown."""
    scores = {gain["n_labels"]: results.measure.sign * gain["score"] for gain in results.label_gain}
    if not scores:
        return ""
    zero, *counts = scores
    show, margin, n_max = results.show, results.margin, counts[-1]
    best_score, before = max(scores[n] for n in counts), scores[zero]
    warning = ""
    for gain in reversed(results.label_gain):
        if (first := gain.get("first_rows")) is not None:
            after = show(results.measure.sign * first)
            warning = say("labels_first", results, n=gain["n_labels"], after=after)
    if best_score - before < margin:
        name = "labels_harmful" if before - scores[n_max] >= margin else "labels_useless"
        text = say(name, results, before=show(before), after=show(scores[n_max]), n=n_max)
        return text + warning
    # The smallest number of labels that matters, and with which the score is about the best.
    min_score = max(before + margin, best_score - margin)
    n_enough = next(n for n in counts if scores[n] >= min_score)
    n_first = counts[0] if scores[counts[0]] - before >= margin else n_enough
    enough = say("labels_enough", results, n=n_enough, after=show(scores[n_enough]))
    values = {"n_first": n_first, "first": show(scores[n_first]), "before": show(before)}
    values |= {"enough": enough * (n_enough != n_first)}
    values |= {"more": " More labels add little." * (n_enough < n_max)}
    return say("labels_useful", results, **values) + warning


def validation_sentence(results: Results) -> str:
    """The number of rows needed to validate the model at the next site; empty if unknown."""
    method, classes = results.recommended, results.facts["classes"]
    if method.trivial or not has_outputs(results, method):
        return ""
    size = validation_size(results, method)
    if size.events is None:
        return say("validation_numbers", results, n=rounded(size.rows))
    class_name = f"class {classes[1]}" if len(classes) == 2 else "the rarest class"
    values = {"n": rounded(size.rows), "n_events": size.events, "class_name": class_name}
    return say("validation_classes", results, **values)


# The sections below -------------------------------------------------------------------------------


def rule(results: Results) -> str:
    """The full rule by which a method is recommended."""
    return say("rule", results, margin=results.margin)


def folds(results: Results, noun: str = "domain") -> str:
    """How domains were held out."""
    n, n_splits = len(results.domains), len(results.recommended.parameters)
    name = "each_held_out" if n_splits in (0, n) else "groups_held_out"
    return say(name, results, n=n, noun=noun, n_groups=in_words(n_splits))


def methods_paragraph(results: Results) -> str:
    """The methods of the evaluation in the words of TRIPOD-Cluster, for a publication."""
    labels = [result.label for result in results.results]
    number = f"{in_words(len(labels)).capitalize()} method{'s' * (len(labels) > 1)}"
    calibration = "calibration_numbers" if results.classes is None else "calibration_classes"
    return say(
        "methods",
        results,
        folds=folds(results, "site"),
        compared=f"{number} ({', '.join(labels)})",
        name=results.recommended.label,
        heterogeneity=heterogeneity(results),
        calibration=TEXTS[calibration],
    )


def heterogeneity(results: Results) -> str:
    """The pooled score, and how much domains differ."""
    pooled, text = pool_method(results, results.recommended), score_format(results)
    if pooled is None or pooled.true_range is None or pooled.tau_interval is None:
        return ""
    low, high = map(text, pooled.true_range)
    taus = dict(zip(("tau_low", "tau_high"), pooled.tau_interval, strict=True))
    values = {"pooled": text(pooled.mean), "tau": pooled.tau, "scale": pooled.scale, **taus}
    return say("heterogeneity", results, low=low, high=high, **values)


def site_columns_sentences(results: Results) -> dict[str, str]:
    """What columns that describe domains change, and whether to drop them; empty if unknown."""
    comparison, show, sign = results.site_columns, results.show, results.measure.sign
    if comparison is None:
        return {}
    method, test = results.find(comparison.method) or results.recommended, ""
    if comparison.error is not None:
        gain, error = (show(sign * abs(x)) for x in (comparison.gain, comparison.error))
        test = say("site_columns_test", results, gain=gain, error=error)
    values = {
        "name": in_sentence(method),
        "columns": listed(comparison.columns),
        "with_score": show(sign * comparison.score_with),
        "without_score": show(sign * comparison.score_without),
        "option": f"--drop {shlex.quote(','.join(comparison.columns))}",
    }
    action = "site_columns_use" if comparison.safer_with else "site_columns_drop"
    effect = say("site_columns", results, test=test, **values)
    return {"effect": effect, "action": say(action, results, **values)}


def difference_sentence(results: Results) -> str:
    """The columns that distinguish a domain from the others."""
    columns, n_others = results.differences["columns"], results.differences["others"]
    names = [domain["name"] for domain in results.differences["domains"]]
    descriptions = [
        f"{c['name']} ({names_of(names[c['tells_at']])}, AUC {c['tells']:.2f})" for c in columns
    ]
    n = sum(column["tells"] >= IDENTIFYING_AUC for column in columns)
    if not n:
        return say("indistinct", results, column=descriptions[0])
    n_columns, texts = len(columns) + n_others, listed(descriptions[:n])
    return say("distinct", results, n=n, n_columns=n_columns, columns=texts)


def importance_sentence(results: Results) -> str:
    """The most important column."""
    importance, sign = results.recommended.importance, results.measure.sign
    if not importance:
        return ""
    column = max(importance, key=lambda name: importance[name])
    name = "unimportant" if importance[column] < results.margin / 2 else "important"
    changes = "decreases" if sign > 0 else "increases"
    loss = results.show(sign * importance[column])
    return say(name, results, column=column, changes=changes, loss=loss)


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
    them = "it" if len(names) == 1 else "them"
    return say("unused", results, columns=listed(names), them=them) if names else ""
