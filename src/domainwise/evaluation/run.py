"""The function ``evaluate``, which scores every method on every held-out domain."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from domainwise.base.arguments import AUTO, CONSTRAINTS, POSITIVE, SEED, check_arguments
from domainwise.base.arrays import ArrayLike, CrossValidator, Label, MaybeArray, Scoring
from domainwise.base.files import to_json
from domainwise.base.inputs import check_is_table, rows_with_weight
from domainwise.base.messages import listed, quoted
from domainwise.base.process import Progress, run_jobs
from domainwise.evaluation import faults as table_faults
from domainwise.evaluation import gather
from domainwise.evaluation import plan as plans
from domainwise.evaluation.evaluation import Evaluation
from domainwise.evaluation.folder import JobMemory, open_folder, stored_plan, write_evaluation
from domainwise.evaluation.jobs import SMALLER, MethodJob, SeenJob, job_key
from domainwise.evaluation.plan import Plan
from domainwise.evaluation.problem import Problem, make_problem, outer_splits, require, seen_splits
from domainwise.evaluation.results import Kind
from domainwise.held_out.calibration.decisions import check_decision
from domainwise.held_out.folds import LeaveDomainsOut, Split, without_rows
from domainwise.held_out.scoring.measures import Measure, choose_measure
from domainwise.models.registry import TRIVIAL, Method, choose_methods, methods_for
from domainwise.tables.schema import Table

#: Maximum cost of a method that is run again without the columns that leak the target, and the
#: larger maximum for the recommended method.
LOW_COST, RECOMMENDED_COST = 5.0, 12.0
#: Cost from which methods are slow, and number of random folds in which they predict seen domains;
#: other methods use all folds.
SLOW_COST, SLOW_FOLDS = 20.0, 2


def evaluate(
    X: ArrayLike,
    y: ArrayLike,
    sample_domain: ArrayLike,
    *,
    methods: str | Sequence[str | tuple[Any, ...] | Method] | None = None,
    task: str = "auto",
    scoring: Scoring | Sequence[str] = None,
    cv: CrossValidator = None,
    inner_cv: CrossValidator = None,
    n_jobs: int | None = None,
    random_state: int = 0,
    progress: bool | Progress = True,
    max_rows: int | str | None = "auto",
    pos_label: Label | None = None,
    prepare: bool = True,
    inner_scoring: Scoring = None,
    threshold: float | None = None,
    sample_weight: MaybeArray | str = None,
    quick: bool = False,
    time_budget: float | str = "auto",
    plan: Evaluation | Plan | Mapping[str, object] | str | Path | None = None,
    out: str | Path | None = None,
    force: bool = False,
) -> Evaluation:
    """Compare methods on held-out domains, and estimate their scores on an unseen domain.

    Each domain is held out in turn, in groups if there are more than ten domains. Each method is
    fitted to the other domains, the sources. Its parameters are chosen by holding out the sources
    in turn. Preprocessing is also fitted to the sources, so that no fit uses a held-out domain.

    Parameters
    ----------
    X : array-like or data frame of shape (n_samples, n_features)
        Numbers, or a data frame with numeric and categorical columns. NaN marks missing values.
    y : array-like of shape (n_samples,) or str
        Classes or a continuous target, or the name of the target column in the data frame.
    sample_domain : array-like of shape (n_samples,) or str
        The domain of each row, such as a site, patient or well, or the name of the domain column.
    methods : list or str, default=None
        None compares "constant", "svm", "linear", "boosting", "dcmcv", "invariantridge" and
        "ensemble". Other names are "kpca", "coir", "dica", "dcm", "sca", "mda", "mida", their
        "fast" variants such as "fastdcm", and "invariant"; "all" compares every method. A method of
        your own is a ``(name, estimator)`` pair, or ``(name, estimator, grid)`` with parameter
        values to choose from; the estimator is any scikit-learn estimator or pipeline. Its ``fit``
        gets the target unchanged, and ``sample_domain`` if requested. If its ``predict`` also
        takes ``sample_domain``, there is a second result, ``name+context``, for which all rows of
        the held-out domain are predicted together.
    task : {"auto", "classification", "regression"}, default="auto"
        With "auto", text and up to 20 distinct whole numbers are treated as classes.
    scoring : str, callable or list of str, default=None
        A scikit-learn scorer, or a list of scorer names. None means RMSE for a continuous target.
        For classes, it means balanced accuracy if a class is rare, or if the share of a class
        varies by more than 0.2 between domains, and otherwise accuracy. The first of several names
        decides how classes are predicted from probabilities; all scores are computed from the same
        predictions.
    cv : splitter or iterable, default=None
        Outer splits; no domain may be on both sides of a split. None holds out one domain at a
        time if there are at most ten domains, and otherwise ten groups of domains.
    inner_cv : splitter, default=None
        Splits of the sources for choosing parameters, with domains as groups. None holds out one
        source domain at a time if there are at most five, and otherwise five groups of domains
        (``LeaveDomainsOut()`` always holds out one at a time, and is slower). With a single
        source domain, folds of its rows are used.
    n_jobs : int, default=None
        Number of worker processes; -1 uses one for each core, if there is enough memory. Scores
        do not depend on this number.
    random_state : int, default=0
        Seed for all random choices.
    progress : bool or callable, default=True
        Whether to show scores and the remaining time: in a terminal, as a table that is updated
        (with Rich), otherwise as one line per fit. A callable gets each fit's cost and result rows.
    max_rows : int, "auto" or None, default="auto"
        Maximum number of rows to train on, drawn evenly from the domains, instead of a time budget;
        None uses all rows. With "auto", ``time_budget`` decides. Scores are computed on all rows,
        up to 100,000. With more than 5,000 source rows, projections are approximated with
        landmarks.
    pos_label : object, default=None
        The positive class of a binary target, for scores such as F1; None means the second class.
    prepare : bool, default=True
        Whether methods of your own get preprocessed numbers, like all other methods. With False,
        they get the rows of X unchanged.
    inner_scoring : str or callable, default=None
        A scikit-learn scorer for choosing parameters on the sources. None uses a smooth score,
        because accuracy on a few domains is noisy: the negative log loss (with decision values
        converted to probabilities by a logistic curve fitted to held-out domains), or the negative
        squared error. All domains have the same weight.
    threshold : float, default=None
        Smallest probability for which the positive class is predicted. None predicts the class
        with the largest ratio of probability and frequency if all classes count the same in the
        metric (such as balanced accuracy), and the most probable class for the accuracy. For other
        metrics, it depends on whether a class is rare.
    sample_weight : array-like of shape (n_samples,) or str, default=None
        How often each row counts, in fits, scores, calibration and decisions: a weight of 2 means
        that the row occurs twice, and a weight of 0 that it does not occur. Intervals therefore
        depend on the sum of the weights. A str is the name of a column. Medians that replace
        missing values, and the statistics of a domain in context, are unweighted.
    quick : bool, default=False
        Whether to finish in at most about half a minute. Domains are held out in at most three
        groups. If this still takes too long, methods are skipped first, and then fewer rows are
        used. The first note and ``facts["quick"]`` describe what was skipped.
    time_budget : float or "auto", default="auto"
        Approximate number of seconds. If all methods on all rows take longer, domains are held out
        in fewer groups, or methods are compared on fewer rows first, and only those that are not
        clearly worse on more rows. "auto" is two minutes on two cores.
    plan : Evaluation or path-like, default=None
        An evaluation, or its folder or file, whose rows, folds and methods are repeated.
    out : path-like, default=None
        A folder to which every finished fit is written. To continue an interrupted evaluation,
        repeat the call; the numbers are the same. If only ``scoring`` changes, the new scores are
        computed from the predictions in the folder.
    force : bool, default=False
        Whether to replace the results of another evaluation in the folder.

    Returns
    -------
    Evaluation

    See Also
    --------
    Evaluation : The result.
    check_shift : Compare new rows with the sources of a model.

    Examples
    --------
    All methods, for a table of four hospitals:

    >>> from domainwise import evaluate
    >>> from domainwise.datasets import load_heart, make_synthetic
    >>> heart = load_heart(as_frame=True).frame  # 920 patients
    >>> evaluation = evaluate(heart, "label", "domain")  # doctest: +SKIP
    >>> print(evaluation.answer.expect)  # doctest: +SKIP
    balanced accuracy between 0.58 and 0.90 at the next site (90 % prediction interval). ...

    Two methods, for three simulated domains:

    >>> data = make_synthetic(n_domains=3, n_per_domain=30, random_state=0)
    >>> methods = ["constant", "linear"]
    >>> evaluation = evaluate(data.data, data.target, data.sample_domain, methods=methods)
    >>> print(evaluation.table()[["method", "mean", "worst"]].round(2).to_string(index=False))
      method  mean  worst
    logistic  0.53    0.5
    constant  0.50    0.5
    """
    options: dict[str, Any] = {"cv": cv, "inner_cv": inner_cv, "max_rows": max_rows, "out": out}
    options |= {"n_jobs": n_jobs, "random_state": random_state, "progress": progress}
    options |= {"quick": quick, "force": force, "time_budget": time_budget}
    rules = {
        "time_budget": [AUTO, POSITIVE],
        "random_state": [SEED],
        "inner_cv": CONSTRAINTS["cv"],
        "out": [str, os.PathLike, None],
    }
    check_arguments("evaluate", rules, prepare=prepare, **options)
    X, y, sample_domain, sample_weight = _separate_columns(X, y, sample_domain, sample_weight)
    options["cv"] = without_rows(cv, sample_weight)
    weights, X, y, sample_domain = rows_with_weight(sample_weight, X, y, sample_domain)
    evaluation = _evaluate(
        partial(make_problem, X, y, sample_domain, task=task, weights=weights),
        choose_methods(methods, prepare=prepare),
        scoring=scoring,
        pos_label=pos_label,
        inner_scoring=inner_scoring,
        threshold=threshold,
        plan=plan,
        **options,
    )
    if out is not None:
        write_evaluation(Path(out), evaluation)
    return evaluation


def evaluate_table(table: Table, methods: Sequence[Method], **options: Any) -> Evaluation:
    """Evaluate methods on a table that was read and checked.

    ``options`` are those of :func:`evaluate`. The caller writes the result file.
    """
    X, y, sample_domain, schema = table.X, table.y, table.sample_domain, table.schema
    create_problem = partial(make_problem, X, y, sample_domain, task=schema.task, schema=schema)
    create_problem = partial(create_problem, weights=table.sample_weight)
    return _evaluate(create_problem, methods, **options)


def _evaluate(
    create_problem: Callable[..., Problem],
    methods: Sequence[Method],
    *,
    scoring: Any = None,
    cv: Any = None,
    inner_cv: Any = None,
    random_state: int = 0,
    max_rows: int | str | None = "auto",
    pos_label: Any = None,
    inner_scoring: Any = None,
    threshold: float | None = None,
    quick: bool = False,
    time_budget: float | str = "auto",
    plan: Any = None,
    out: str | Path | None = None,
    force: bool = False,
    **options: Any,
) -> Evaluation:
    """Create the problem and compare methods; ``options`` are passed to :func:`compare_methods`."""
    require(out is None or os.fspath(out), "empty out")
    require(not isinstance(scoring, (list, tuple)) or scoring, "no scorers")
    scoring, *extra_scorers = scoring if isinstance(scoring, (list, tuple)) else [scoring]
    full_problem = create_problem(
        scoring=scoring,
        random_state=random_state,
        pos_label=pos_label,
        inner_scoring=inner_scoring,
    )
    if threshold is not None:
        check_decision(threshold, full_problem.n_classes)
        full_problem = replace(full_problem, overrides={"decision": threshold})
    methods = methods_for(methods, full_problem.classification)
    cv = list(cv) if hasattr(cv, "__iter__") and not hasattr(cv, "split") else cv
    measure_arguments = (full_problem.y, full_problem.classification, pos_label)
    if quick:
        full_problem = replace(full_problem, max_scored=plans.QUICK_SCORED)
    keys = [method.key for method in methods]
    limits: dict[str, Any] = {"max_rows": max_rows, "time_budget": time_budget, "quick": quick}
    requested = {**limits, "methods": keys, "planned": plan is not None}
    if plan is not None:
        plan = Plan.read(plan)
    elif out is None or force or (plan := stored_plan(Path(out), requested)) is None:
        limits["n_jobs"] = options.get("n_jobs")
        can_skip = keys == [method.key for method in choose_methods(None)]
        plan = plans.make_plan(full_problem, methods, cv=cv, can_skip=can_skip, **limits)
    if plan.inner_groups is not None and inner_cv is None:
        inner_cv = LeaveDomainsOut(max_splits=plan.inner_groups)
    evaluation = compare_methods(
        full_problem,
        [*plans.planned_methods(plan, methods)],
        cv=cv,
        inner_cv=inner_cv,
        more_measures=[choose_measure(scorer, *measure_arguments) for scorer in extra_scorers],
        out=out,
        force=force,
        plan=plan,
        requested=requested,
        **options,
    )
    evaluation.source = replace(full_problem, measure=evaluation.chosen_for or full_problem.measure)
    evaluation.inner_cv = inner_cv
    return evaluation


def _separate_columns(
    X: Any, y: Any, sample_domain: Any, sample_weight: Any
) -> tuple[Any, Any, Any, Any]:
    """Separate target, domains and weights from X if they are passed as column names."""
    check_is_table(X)
    arguments = {"y": y, "sample_domain": sample_domain, "sample_weight": sample_weight}
    name_by_argument = {key: value for key, value in arguments.items() if np.isscalar(value)}
    if not name_by_argument:
        return X, y, sample_domain, sample_weight
    X = X.to_pandas() if hasattr(X, "to_pandas") else X
    column_names = list(getattr(X, "columns", ()))
    choices = listed([*map(quoted, column_names)], 12, ", ")
    for argument, name in name_by_argument.items():
        if (n_matches := column_names.count(name)) == 1:
            continue
        reason = "names several columns of X. Rename all but one of them"
        if not hasattr(X, "columns"):
            reason = (
                "names a column, but X is not a data frame. Pass an array with one value per row"
            )
        elif not n_matches:
            reason = f"is not a column of X; use one of {choices}"
        raise ValueError(f"{argument}={quoted(name)} {reason}")
    if len({*name_by_argument.values()}) < len(name_by_argument):
        names, values = listed([*name_by_argument]), [*map(quoted, name_by_argument.values())]
        raise ValueError(f"{names} must be different columns; got {listed(values)}")
    arguments |= {argument: X[name] for argument, name in name_by_argument.items()}
    return X.drop(columns=[*name_by_argument.values()]), *arguments.values()


@dataclass(frozen=True)
class Stage:
    """The rows, splits and methods of one size of a plan."""

    problem: Problem
    splits: list[Split]
    methods: list[Method]
    part: str  #: as in :class:`MethodJob`

    def jobs(
        self, scored: Sequence[Method], inner_cv: Any, columns: Sequence[str], quick: bool
    ) -> list[MethodJob]:
        """Jobs for the methods in ``scored``; smaller sizes omit what only the report needs."""
        keys = [method.key for method in self.methods]
        is_last = self.part == Kind.HELD_OUT
        options = (inner_cv, columns if is_last else (), quick or not is_last, self.part)
        return [
            MethodJob(self.problem, method, split, split_number, *options)
            for split_number, split in enumerate(self.splits)
            for method in scored
            if method.key in keys
        ]

    def scored(self, measure: Measure, memory: JobMemory) -> Evaluation:
        """Score the finished jobs of this size."""
        rows = [
            {**row, "part": Kind.HELD_OUT} if row["part"] == self.part else row
            for row in memory.rows
            if row["part"] in (self.part, Kind.SEEN if self.part == Kind.HELD_OUT else self.part)
        ]
        memo = memory.memo.setdefault(self.part, {})
        return gather.scored_evaluation(
            self.problem, measure, self.methods, self.splits, rows, memo
        )

    def scored_without(
        self,
        measure: Measure,
        inner_cv: Any,
        n_workers: int,
        columns: Sequence[str],
        methods: list[Method],
        quick: bool,
    ) -> Evaluation | None:
        """Score methods again without some columns; None if no column or no score is left."""
        if not methods or len(columns) >= self.problem.X.shape[1]:
            return None
        problem, memory = self.problem.without_columns(columns), JobMemory()
        stage = replace(self, problem=problem, methods=methods)
        run_jobs(stage.jobs(methods, inner_cv, (), quick), memory, n_jobs=n_workers)
        with suppress(ValueError):  # raised if no method could be evaluated
            return stage.scored(measure, memory)
        return None


def compare_methods(
    problem: Problem,
    methods: Sequence[Method],
    *,
    cv: Any = None,
    inner_cv: Any = None,
    details: bool = True,
    n_jobs: int | None = None,
    progress: bool | Progress = True,
    more_measures: Sequence[Measure] = (),
    out: str | Path | None = None,
    force: bool = False,
    plan: Plan | None = None,
    requested: dict[str, Any] | None = None,
    partial_results: bool = False,
) -> Evaluation:
    """Run methods on all splits of a problem, at each size of a plan.

    With ``details``, domains and columns are described and, unless the plan is quick, scores on
    seen domains are added. ``requested`` contains the arguments from which the plan was made. With
    ``partial_results``, an interruption (Ctrl-C) returns an evaluation of the finished jobs.
    """
    methods = methods_for(methods, problem.classification)
    measures = [problem.measure, *more_measures]
    scored_methods = gather.scorable_methods(problem, methods, measures)
    require(scored_methods, "no probabilities", name=problem.measure.name)
    if plan is None:
        plan = Plan((plans.Size(len(problem.y), None, tuple(method.key for method in methods)),))
    last_problem = problem.drawn(plan.sizes[-1].rows)
    splits = outer_splits(last_problem, plan.splitter(plan.sizes[-1], cv, problem.seed))
    require(len(problem.unscored) < len(problem.domains), "no scored domain")
    settings: dict[str, Any] = {"inner_cv": repr(inner_cv), "inside": details, "quick": plan.quick}
    if problem.inner_scoring is not None:
        settings["inner_scoring"] = repr(problem.inner_scoring)
    settings |= {**problem.overrides, "requested": requested, "plan": to_json(plan)}
    with (
        nullcontext(JobMemory())
        if out is None
        else open_folder(Path(out), last_problem, scored_methods, splits, force=force, **settings)
    ) as memory:
        if (scorer := memory.chosen_by) is not None:
            measure = choose_measure(scorer, problem.y, problem.classification, problem.positive)
            problem = replace(problem, measure=measure)
        last_problem = problem.drawn(plan.sizes[-1].rows)
        differences = (
            table_faults.describe_differences(last_problem) if details else {"columns": []}
        )
        column_names = [column["name"] for column in differences["columns"]]
        costs = plans.Costs(problem, methods, cv, plan.quick)
        seconds = [costs.total(s.methods, s.rows, s.groups) for s in plan.sizes]
        n_workers = plans.workers_for(problem, n_jobs, sum(seconds))
        stop_note, stages, jobs = "", [], []
        try:
            with plans.job_progress(progress, costs, n_workers) as callback:
                for number, size in enumerate(plan.sizes):
                    is_last = number == len(plan.sizes) - 1
                    stage_problem = last_problem if is_last else problem.drawn(size.rows)
                    splitter = plan.splitter(size, cv, problem.seed)
                    stage = Stage(
                        stage_problem,
                        splits if is_last else outer_splits(stage_problem, splitter),
                        [m for m in methods if m.key in plan.sizes[number].methods],
                        Kind.HELD_OUT if is_last else f"{SMALLER}{number + 1}",
                    )
                    stages.append(stage)
                    jobs = stage.jobs(scored_methods, inner_cv, column_names, plan.quick)
                    _run(jobs, memory, n_workers, callback, sum(seconds[number + 1 :]))
                    if not is_last and not plan.is_decided:
                        results = stage.scored(problem.measure, memory)
                        omitted_keys = [*plans.clearly_worse(results), *results.left_out]
                        plan = plan.without(omitted_keys, number)
                if details and not plan.quick:
                    evaluations = [stages[-1].scored(measure, memory) for measure in measures]
                    _run(_seen_domain_jobs(jobs, memory, evaluations), memory, n_workers, callback)
        except KeyboardInterrupt:
            if not (partial_results and memory.rows):
                raise
            stop_note = _remove_incomplete_splits(jobs, memory)
            if not any(row["part"] == stages[-1].part for row in memory.rows):
                stages.pop()
        evaluation, *others = (
            gather.with_sizes([stage.scored(measure, memory) for stage in stages])
            for measure in measures
        )
        evaluation.plan = replace(plan, is_decided=True)
        notes = [stop_note, plan.description(last_problem), *gather.size_notes(evaluation)]
        evaluation.notes = [*(note for note in notes if note), *evaluation.notes]
        if stop_note:
            evaluation.facts["stopped"] = stop_note
        if plan.quick:
            evaluation.facts["quick"] = plan.description(last_problem)
        evaluation.left_out |= plan.left_out
        evaluation.others, evaluation.chosen_for = others, problem.measure
        faults = differences.get("faults", [])
        last_methods = [m for m in scored_methods if m in stages[-1].methods]
        rerun = partial(stages[-1].scored_without, evaluation.measure, inner_cv, n_workers)
        method = next(m for m in scored_methods if m.key == evaluation.recommended_)
        names = table_faults.columns_of_sites(faults)
        is_affordable = not plan.quick or method.cost <= RECOMMENDED_COST
        if names and is_affordable and not (stop_note or method.trivial):
            without = rerun(names, [replace(method, context=False)], plan.quick)
            if without is not None:
                evaluation.site_columns = gather.compare_columns(evaluation, without.best, names)
        faults = table_faults.with_effects(faults, evaluation)
        evaluation.differences = {**differences, "faults": faults}
        if (names := table_faults.leaking_columns(faults)) and not stop_note:
            # The constant prediction uses no columns and is skipped.
            max_costs = {evaluation.recommended_: RECOMMENDED_COST, TRIVIAL: -np.inf}
            fast = [m for m in last_methods if m.cost <= max_costs.get(m.key, LOW_COST)]
            without = rerun(names, fast, True)
            evaluation.differences |= table_faults.check_leaks(evaluation, without)
    return evaluation


def _remove_incomplete_splits(jobs: Sequence[MethodJob], memory: JobMemory) -> str:
    """Remove the rows of incomplete splits; if all splits are incomplete, keep the first.

    Return a sentence about the missing splits.
    """
    unfinished_jobs, part = memory.unfinished(jobs), jobs[0].part
    split_numbers = sorted({job.split_number for job in jobs})
    incomplete_numbers = {job.split_number for job in unfinished_jobs}
    remaining_numbers = sorted({*split_numbers} - incomplete_numbers) or split_numbers[:1]
    memory.rows = [
        row
        for row in memory.rows
        if row["part"] not in (part, Kind.SEEN) or row["split"] in remaining_numbers
    ]
    counts = {"n_finished": len(jobs) - len(unfinished_jobs), "n_jobs": len(jobs)}
    counts |= {"n_splits": len(remaining_numbers), "n_all": len(split_numbers)}
    return gather.NOTES["interrupted"].format(**counts)


def _run(
    jobs: Sequence[MethodJob],
    memory: JobMemory,
    n_workers: int,
    progress: Progress | None,
    later_seconds: float = 0.0,
) -> None:
    """Run the unfinished jobs split by split, so that scores are comparable at any time.

    The first split starts with fast methods, so that the first scores appear early. The other
    splits start with slow methods, so that no worker is idle at the end.
    """
    unfinished_jobs = sorted(
        memory.unfinished(jobs),
        key=lambda j: (j.split_number, j.cost if j.split_number == 0 else -j.cost, j.method.key),
    )
    if isinstance(progress, plans.JobProgress):
        progress.begin(unfinished_jobs, later_seconds)
    run_jobs(unfinished_jobs, memory, n_jobs=n_workers, progress=progress)


def _seen_domain_jobs(
    jobs: Sequence[MethodJob], memory: JobMemory, evaluations: Sequence[Evaluation]
) -> list[SeenJob]:
    """Jobs that predict seen domains, for the methods that the report describes.

    Slow methods are included only if they are recommended, and only in ``SLOW_FOLDS`` folds.
    """
    described_keys = {result.key for evaluation in evaluations for result in evaluation.described}
    recommended_keys = {evaluation.recommended_ for evaluation in evaluations}
    problem = jobs[0].problem
    first_row_by_number = {job.split_number: job.split[1][0] for job in jobs}
    # The names of domains decide about the numbers of splits, but not about their folds.
    rows = problem.by_content(np.array([*first_row_by_number.values()]))
    split_by_row = dict(zip(rows.tolist(), seen_splits(problem, len(rows)), strict=False))
    model_by_key = {job_key(row): row.get("settled_model") for row in memory.rows}
    seen_domain_jobs = []
    for job in jobs:
        variants = job.method.rows(job.problem.classification)
        context_keys = [key for key, _, context in variants if context]
        is_included = any(key in described_keys for key, _, _ in variants)
        if job.method.cost > SLOW_COST:
            is_included &= job.method.key in recommended_keys and job.split_number < SLOW_FOLDS
        seen_split = split_by_row.get(first_row_by_number[job.split_number])
        if is_included and seen_split is not None:
            seen_domain_jobs.append(
                SeenJob(
                    *(job.problem, job.method, job.split, job.split_number, job.inner_cv),
                    seen_split=seen_split,
                    chosen_model=model_by_key[job.row_keys[0]],
                    use_context=not described_keys.isdisjoint(context_keys),
                )
            )
    return seen_domain_jobs
