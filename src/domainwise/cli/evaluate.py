"""The commands evaluate and report."""

from __future__ import annotations

import hashlib
import importlib
import re
import shlex
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from domainwise.cli import common, options
from domainwise.cli.common import dask_client, escaped, resolve_jobs, stderr, stdout

if TYPE_CHECKING:
    from domainwise.evaluation import Evaluation
    from domainwise.models.registry import Method

REPORT_NAME = "report.html"
_EXTENSIONS = re.compile(r"(\.(gz|csv|tsv|parquet|pq|feather|arrow|xlsx))+$", re.IGNORECASE)
#: Colors of method names, by kind of method.
_COLORS = {"baseline": "blue", "projection": "red", "machine": "magenta", "own": "green"}


@options.command
def example(
    out: Annotated[Path, "CSV file to write, such as hospitals.csv."],
    *,
    force: options.Force = False,
) -> None:
    """Write a table of four hospitals, to try the other commands.

    It contains 920 patients with (1) or without (0) heart disease in the column label, and their
    hospital in the column domain:

    domainwise evaluate hospitals.csv --target label --domain domain
    """
    from domainwise.base.files import replacing
    from domainwise.datasets import load_heart

    common.check_output(out, force, ".csv", ".csv.gz")
    frame = load_heart(as_frame=True).frame
    with replacing(out) as path:
        frame.to_csv(path, index=False, lineterminator="\n")
    common.print_json({"file": str(out), "rows": len(frame), "columns": [*frame.columns]})
    common.print_written(out)


@options.command
def evaluate(
    data: options.Data,
    *,
    target: options.Target,
    domain: options.Domain,
    weight: options.Weight = None,
    task: options.Task = "auto",
    methods: Annotated[
        str | None,
        'Methods to compare, separated by commas, or "all". Default: the default methods above.',
        "NAMES",
    ] = None,
    estimator: Annotated[
        options.Names,
        "Your own estimator, to compare with the methods: package.module:factory or a model file. "
        "This option can be repeated.",
        "ESTIMATOR",
    ] = None,
    metric: Annotated[
        str | None,
        "scikit-learn scorers, separated by commas. The first one determines how classes are "
        "predicted from probabilities. Default: root_mean_squared_error for regression, and "
        "accuracy or balanced_accuracy for classification.",
        "NAMES",
    ] = None,
    inner_metric: Annotated[
        str | None,
        "Scorer used to choose each method's parameters. Default: log loss or squared error.",
    ] = None,
    positive: options.Positive = None,
    threshold: options.Threshold = None,
    columns: options.ColumnOptions,
    read_options: options.ReadingOptions,
    budget: Annotated[
        str,
        "Time for the evaluation on this machine, such as 90s, 5m or 1h; rows, folds and methods "
        'are chosen for it. "auto": about two minutes on two cores.',
        "TIME",
    ] = "auto",
    plan: Annotated[
        Path | None,
        "Repeat the rows, folds and methods of another evaluation: its results folder, or its file "
        "evaluation.json.",
    ] = None,
    max_rows: Annotated[
        int | None,
        "Number of training rows, sampled evenly from the domains, instead of a budget; 0 for all.",
    ] = None,
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    dask: options.Dask = None,
    out: Annotated[
        Path | None,
        "Results folder. Default: domainwise-evaluation/NAME, where NAME is the table's file name "
        "without its extension.",
        "FOLDER",
        "-o",
    ] = None,
    report: Annotated[bool, "Write the HTML report."] = True,
    quick: Annotated[
        bool, "Use fewer folds, methods and rows, for a result within half a minute."
    ] = False,
    force: Annotated[bool, "Overwrite existing results in the folder."] = False,
) -> None:
    """Compare methods on held-out domains.

    The result shows which method to use for a domain that is not in the table. Every domain is held
    out in turn (in groups if there are more than ten domains), and each method's parameters are
    chosen on the other domains only. If all methods on all rows would take longer than the budget,
    they are compared on fewer rows first, and those that are not clearly worse on more rows.

    Default methods: constant, svm, linear, boosting, dcmcv (domain-based covariance minimization,
    DCM), invariantridge, ensemble. Further methods: invariant, kpca, coir, dica, dcm, sca, mda,
    mida, and fast variants such as fastdcm. The page "Choosing a method" in the user guide
    describes them. The ensemble has two scores: one for rows predicted individually, and one for
    all rows of a held-out domain predicted together (shown as +context).

    The result of each fit is saved immediately. After Ctrl-C, the report contains the finished
    fits; run the same command again to continue. If you change --metric, the new scores are
    computed from saved predictions.
    """
    from domainwise.distributed.fit import folds_on
    from domainwise.evaluation.folder import JOBS, RESULT_NAME, write_evaluation
    from domainwise.evaluation.run import evaluate_table
    from domainwise.models.registry import choose_methods
    from domainwise.tables.errors import sentence

    n_jobs = resolve_jobs(jobs, dask)
    if max_rows is not None and max_rows < 0:
        raise ValueError(f"--max-rows must be positive, or 0 for no limit; got {max_rows}")
    seconds = "auto" if budget == "auto" else common.parse_seconds(budget)
    selected_methods = choose_methods([*choose_methods(methods), *own_methods(estimator)])
    if report:
        common.require_report("--no-report")
    stem = _EXTENSIONS.sub("", data.name) or data.name
    folder = out or Path("domainwise-evaluation") / stem
    for path in (data.absolute(), folder.absolute()):  # results and report contain these names
        if "?" in str(path).replace("?", "").encode("utf-8", "replace").decode():
            raise ValueError(f"the name {path} is not UTF-8; rename the file or folder")
    output_paths = [folder / RESULT_NAME] + ([folder / REPORT_NAME] if report else [])
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; choose a results folder with --out")
    for path in output_paths:
        if path.is_dir():
            raise ValueError(f"{path} is a folder, not a file; choose another folder with --out")
    # If the folder contains saved fits, evaluate_table checks whether they belong to this command.
    existing_paths = [str(path) for path in output_paths if path.exists()]
    if existing_paths and not force and not (folder / JOBS).is_dir():
        raise ValueError(
            f"this command would overwrite {' and '.join(existing_paths)}; use --force to allow "
            "this, or choose another folder with --out"
        )
    table_options: dict[str, Any] = {"target": target, "domain": domain, "weight": weight}
    table_options |= {"task": task, **vars(columns), **read_options.arguments()}
    table = common.read_input(data, **table_options)
    common.print_notes(stderr(), table.notes)
    with dask_client(dask) as client, folds_on(client):
        evaluation = evaluate_table(
            table,
            selected_methods,
            scoring=common.split_commas(metric) or None,
            n_jobs=n_jobs,
            random_state=seed,
            max_rows="auto" if max_rows is None else max_rows or None,
            time_budget=seconds,
            plan=plan,
            pos_label=positive,
            quick=quick,
            out=folder,
            force=force,
            inner_scoring=inner_metric,
            threshold=threshold,
            partial_results=True,
        )
    evaluation.next_step = next_step(evaluation, folder, estimator)
    notes = [*map(sentence, table.notes)]
    evaluation.notes = [*notes, *evaluation.notes]
    title = f"{data.name}: predicting “{target}” for a new “{domain}”"
    contents = write_evaluation(
        folder,
        evaluation,
        # fit --from needs this to read the same table again.
        table={"path": str(data.absolute()), "sha256": digest(data), "asked": table_options},
        estimators=list(estimator or ()),
        title=title,
    )
    common.print_json({**contents, "files": [str(path) for path in output_paths]})
    if report:
        try:
            evaluation.report(folder / REPORT_NAME, title=title)
        except Exception as error:
            print_evaluation(evaluation, printed_notes=notes)
            raise options.PartialFailure(
                f"the report could not be written ({type(error).__name__}: {error}). The results "
                f"in {folder} are complete; run `domainwise report {folder}` to try again."
            ) from error
    if stop_message := evaluation.facts.get("stopped"):
        common.print_line(stderr(), f"[yellow]{escaped(stop_message)}[/yellow]")
    print_evaluation(evaluation, output_paths[1] if report else None, printed_notes=notes)
    if stop_message:
        raise typer.Exit(1)


def print_evaluation(
    evaluation: Evaluation, page: Path | None = None, printed_notes: Collection[str] = ()
) -> None:
    """Print at most twenty lines: scores, recommendation, problems, and the next command.

    Further notes are printed only if there is no ``page`` that contains them.
    """
    console = stdout()
    console.print(_scores_table(evaluation))
    for other_evaluation in evaluation.others:
        console.print()
        console.print(_scores_table(other_evaluation))
    if page is None:
        common.print_notes(console, [n for n in evaluation.notes if n not in printed_notes])
    console.print()
    # Each line starts with a label of 13 characters. The table has a header and a blank line.
    n_lines = 18 - min(len(evaluation.results), MAX_METHODS)
    report = None if page is None else str(page)
    for line in evaluation.answer.lines(report=report, n_lines=n_lines):
        # Without a tag at its end, Rich would double the backslash of a command on two lines.
        markup = f"[bold]{escaped(line[:13])}[/][not bold]{escaped(line[13:])}[/]"
        console.print(markup, soft_wrap=True)


#: Maximum number of methods and of characters of a domain's name in the terminal.
MAX_METHODS, MAX_NAME = 8, 24


def _scores_table(evaluation: Evaluation) -> Any:
    label = evaluation.measure.label
    headings = (label, "mean", "worst", "spread", "seen", "p", "rows", "worst domain")
    rows: list[tuple[str, ...]] = [headings]
    has_sizes = len({method.n_rows for method in evaluation.results}) > 1
    shown_results = evaluation.results
    if len(shown_results) > MAX_METHODS:  # the best ones, and the constant prediction
        shown_results = [*shown_results[: MAX_METHODS - 2], shown_results[-1]]
    for method in shown_results:
        name = f"[{_COLORS[method.kind]}]{escaped(method.label)}[/]"
        mean, worst, worst_domain, seen_mean, p = evaluation.cells(method)
        mean = f"[bold]{mean}[/]" if method is evaluation.best else mean
        spread = evaluation.show(evaluation.measure.sign * method.spread)
        if len(worst_domain) > MAX_NAME:
            worst_domain = worst_domain[: MAX_NAME - 1] + "…"
        n_rows = f"{method.n_rows:,}" if has_sizes else "–"
        rows.append((name, mean, worst, spread, seen_mean, p, n_rows, escaped(worst_domain)))
    if n_hidden := len(evaluation.results) - len(shown_results):
        hidden = f"[dim]{common.count(n_hidden, 'other method')}[/]"
        rows.insert(-1, (hidden, *[""] * (len(rows[0]) - 1)))
    columns = [column for column in zip(*rows, strict=True) if set(column[1:]) - {"–", ""}]
    header, *body_rows = zip(*columns, strict=True)
    return common.text_table(header, body_rows, text_columns=["worst domain"])


def own_methods(estimators: list[str] | None) -> list[Method]:
    """Return methods made from ``package.module:factory`` and from model files.

    A method has the name of its factory or file. A factory is called without arguments; its module
    may be in the current folder.
    """
    from domainwise.models.files.persistence import load_saved
    from domainwise.models.registry import own_method

    methods = []
    for estimator in estimators or ():
        if estimator.endswith(".skops"):
            # A model that was fitted to a table includes its preprocessing.
            model, schema = load_saved(estimator)
            methods.append(own_method((Path(estimator).stem, model), schema is None))
            continue
        module_name, _, factory_name = estimator.partition(":")
        if not module_name or not factory_name.isidentifier():
            raise ValueError(
                f"--estimator {estimator} is not valid; pass package.module:factory or a model "
                "file (.skops)"
            )
        sys.path.insert(0, str(Path.cwd()))
        try:
            factory = getattr(importlib.import_module(module_name), factory_name)
            methods.append(own_method((factory_name, factory() if callable(factory) else factory)))
        except (ImportError, AttributeError, TypeError) as error:
            raise ValueError(
                f"--estimator {estimator} cannot be imported or created: {error}. Check the "
                "spelling, and make sure that the factory needs no arguments."
            ) from error
        finally:
            sys.path.remove(str(Path.cwd()))
    return methods


def digest(path: Path) -> str:
    """Return the SHA-256 digest of a file, or of the names and contents of a folder's files."""
    hasher = hashlib.sha256()
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    for file in files:
        if path.is_dir():
            hasher.update(f"{file.relative_to(path)}\n".encode())
        with file.open("rb") as stream:
            hashlib.file_digest(stream, lambda: hasher)
    return hasher.hexdigest()


def next_step(evaluation: Evaluation, folder: Path, estimators: list[str] | None) -> str:
    """Return advice on fitting the recommended method to all rows; "" for a constant prediction."""
    recommended_method = evaluation.recommended
    if recommended_method.trivial:
        return ""
    advice = " (then predict with --context)" if recommended_method.context else ""
    command_words = ["domainwise", "fit", "--from", str(folder)]
    for estimator in (estimators or ()) if recommended_method.kind == "own" else ():
        command_words += ["--estimator", estimator]
    command_words += ["-o", f"{folder.name}.skops"]
    return f"To fit {recommended_method.label} to all rows{advice}: {shlex.join(command_words)}"


@options.command
def report(folder: Annotated[Path, "Results folder written by evaluate."]) -> None:
    """Regenerate the HTML report for a results folder."""
    common.require_report()
    from domainwise.evaluation.folder import read_evaluation

    evaluation, contents = read_evaluation(folder)
    page = evaluation.report(folder / REPORT_NAME, title=contents.get("title"))
    common.print_json({**contents, "files": [str(page)]}, then_exit=True)
    print_evaluation(evaluation, page)
