"""The commands evaluate and compare: methods on held-out domains, as a table and a page."""

from __future__ import annotations

import hashlib
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from domainwise.cli import common, options
from domainwise.cli.common import shown, stderr, stdout
from domainwise.cli.dask import connected, processes

if TYPE_CHECKING:
    from domainwise.evaluation import Evaluation
    from domainwise.models.registry import Method

REPORT_NAME = "report.html"
_ENDINGS = re.compile(r"(\.(gz|csv|tsv|parquet|pq|feather|arrow|xlsx))+$", re.IGNORECASE)
#: Colour of a method's name by its kind.
_COLOURS = {"baseline": "blue", "projection": "red", "machine": "magenta", "own": "green"}


@options.command
def evaluate(
    data: options.Data,
    *,
    target: options.Target,
    domain: options.Domain,
    task: options.Task = "auto",
    methods: Annotated[
        str | None, "Methods, separated by commas, or all. Default: the first seven above.", "NAMES"
    ] = None,
    estimator: Annotated[
        options.Names,
        "A model of your own to compare: package.module:factory, or a model file. Repeat the "
        "option for several.",
        "WHERE",
    ] = None,
    metric: Annotated[
        str | None,
        "scikit-learn scorers, separated by commas. Default: depends on the target. The first "
        "one decides whether classes are weighted.",
        "NAMES",
    ] = None,
    inner_metric: Annotated[
        str | None, "Scorer that chooses parameters. Default: log loss or squared error."
    ] = None,
    positive: options.Positive = None,
    columns: options.ColumnOptions,
    reading: options.ReadingOptions,
    max_rows: Annotated[
        int, "Train on at most this many rows, drawn evenly from the domains; 0: all."
    ] = 2000,
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    dask: options.Dask = None,
    out: Annotated[
        Path | None, "Results folder. Default: domainwise-evaluation/NAME.", "FOLDER", "-o"
    ] = None,
    report: Annotated[bool, "Write the HTML report."] = True,
    quick: Annotated[bool, "Fewer rows and folds: a first result in about half a minute."] = False,
    force: Annotated[bool, "Replace other results in the folder."] = False,
) -> None:
    """Compare methods on held-out domains.

    The result shows which method to use on a domain that is not in the table. Every domain is held
    out in turn (in ten groups if there are more than ten), and parameters are chosen on the other
    domains only.

    Methods: constant, svm, linear, boosting, dcmcv, invariantridge, ensemble; others with
    --methods: kpca, coir, dica, dcm, sca, mda, mida, their fast forms such as fastdcm, and
    invariant. The ensemble is scored twice: row by row, and with all rows of the held-out domain at
    once (+context).

    Each job is saved as soon as it is finished. After Ctrl-C the report shows what is finished, and
    the same command continues the run, with the same numbers. Another --metric is computed from the
    saved predictions.
    """
    from domainwise.distributed.fit import folds_on
    from domainwise.evaluation.evaluate import evaluate_table
    from domainwise.evaluation.folder import JOBS, RESULT_NAME, write_evaluation
    from domainwise.models.registry import choose_methods
    from domainwise.tables.schema import ONE_CLASS

    n_jobs = processes(jobs, dask)
    if max_rows < 0:
        raise ValueError(f"--max-rows must be 0 (all) or more, got {max_rows}")
    chosen = choose_methods(methods)
    if estimator:
        chosen = choose_methods([*chosen, *own_methods(estimator)])
    if report:
        common.require("report", "--no-report")
    stem = _ENDINGS.sub("", data.name) or data.name
    folder = out or Path("domainwise-evaluation") / stem
    files = [folder / RESULT_NAME] + ([folder / REPORT_NAME] if report else [])
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; choose a folder with --out")
    for path in files:
        if path.is_dir():
            raise ValueError(f"{path} is a folder, but a file is to be written; change --out")
    # Whether jobs in the folder belong to this command is checked once the table has been read.
    existing = [str(path) for path in files if path.exists()]
    if existing and not force and not (folder / JOBS).is_dir():
        raise ValueError(
            f"{' and '.join(existing)} would be overwritten; use --force to do so, or choose "
            "another folder with --out"
        )
    table_options: dict[str, Any] = {"target": target, "domain": domain, "task": task}
    table_options |= {**vars(columns), **reading.arguments()}
    table = common.read_input(data, **table_options)
    common.print_notes(stderr(), table.notes)
    with connected(dask) as client, folds_on(client):
        result = evaluate_table(
            table,
            chosen,
            scoring=common.parts_of(metric) or None,
            n_jobs=n_jobs,
            random_state=seed,
            max_rows=max_rows or None,
            pos_label=positive,
            quick=quick,
            out=folder,
            force=force,
            inner_scoring=inner_metric,
            partial_results=True,
        )
    result.next_step = next_step(result, folder, estimator)
    # The evaluation adds another note about domains with one class.
    notes = (f"{note[0].upper()}{note[1:]}." for note in table.notes if ONE_CLASS not in note)
    result.notes = [*notes, *result.notes]
    title = f"Predicting {target} for a new {domain}: {data.name}"
    stored = write_evaluation(
        folder,
        result,
        # All that is needed to fit the same models again.
        table={"path": str(data.absolute()), "sha256": digest(data), "asked": table_options},
        estimators=list(estimator or ()),
        title=title,
    )
    common.print_json({**stored, "files": [str(path) for path in files]})
    print_evaluation(result)
    if report:
        try:
            result.report(folder / REPORT_NAME, title=title)
        except Exception as error:
            raise options.Unfinished(
                f"the page could not be drawn ({type(error).__name__}: {error}); the results are "
                f"complete in {folder}, and domainwise report {folder} tries again"
            ) from error
    if stopped := result.facts.get("stopped"):
        stderr().print(f"[yellow]{shown(stopped)}[/yellow]", soft_wrap=True)
    stdout().print(f"\nresults: {shown(files[0])}", soft_wrap=True)
    if report:
        common.print_page(files[1])
    if stopped:
        raise typer.Exit(1)


def print_evaluation(result: Evaluation) -> None:
    """Print the methods, the notes, and the answer last, in at most twelve lines."""
    console, facts = stdout(), result.facts
    console.print(
        f"[bold]{shown(result.measure.label)}[/] ({result.measure.direction}) on "
        f"{len(result.best.known)} held-out domains, {facts['rows']:,} rows, {facts['task']}\n"
    )
    console.print(_scores_table(result))
    console.print("\n[dim]●: best baseline. The page explains the columns.[/]")
    for other in result.others:
        console.print(f"\n[bold]{shown(other.measure.label)}[/] of the same predictions")
        console.print(_scores_table(other))
    common.print_notes(console, result.notes)
    console.print()
    for line in result.answer.lines():
        console.print(f"[bold]{shown(line[:13])}[/]{shown(line[13:])}", soft_wrap=True)


def _scores_table(result: Evaluation) -> Any:
    rows = [("method", "mean", "worst", "spread", "seen", "p", "worst domain")]
    for method in result.results:
        mark = " ●" if method is result.baseline else ""
        label = f"[{_COLOURS[method.kind]}]{shown(method.label)}[/]{mark}"
        mean, worst, domain, seen, p = result.cells(method)
        mean = f"[bold]{mean}[/]" if method is result.best else mean
        spread = result.show(result.measure.sign * method.spread)
        rows.append((label, mean, worst, spread, seen, p, shown(domain)))
    columns = [column for column in zip(*rows, strict=True) if set(column[1:]) != {"–"}]
    header, *cells = zip(*columns, strict=True)
    return common.text_table(header, cells, wrapped=["worst domain"])


def own_methods(names: list[str] | None) -> list[Method]:
    """Make methods from ``package.module:factory`` and model files, named by their last part.

    A factory is called without arguments; its module may be in the current folder.
    """
    import importlib
    import sys

    from domainwise.model_files.persistence import load, read_info
    from domainwise.models.registry import own_method

    methods = []
    for text in names or ():
        if text.endswith(".skops"):
            # A model of a table prepares its columns itself.
            prepare = "schema" not in read_info(text)["info"]
            methods.append(own_method((Path(text).stem, load(text)), prepare))
            continue
        module, _, name = text.partition(":")
        if not module or not name.isidentifier():
            raise ValueError(
                f"--estimator {text}: pass package.module:factory, or a model file (.skops)"
            )
        sys.path.insert(0, str(Path.cwd()))
        try:
            factory = getattr(importlib.import_module(module), name)
            methods.append(own_method((name, factory() if callable(factory) else factory)))
        except (ImportError, AttributeError, TypeError) as error:
            raise ValueError(f"--estimator {text}: {error}") from error
        finally:
            sys.path.remove(str(Path.cwd()))
    return methods


def digest(path: Path) -> str:
    """SHA-256 of a file, or of all files of a folder with their names."""
    whole = hashlib.sha256()
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    for file in files:
        if path.is_dir():
            whole.update(f"{file.relative_to(path)}\n".encode())
        with file.open("rb") as stream:
            hashlib.file_digest(stream, lambda: whole)
    return whole.hexdigest()


def next_step(result: Evaluation, folder: Path, estimators: list[str] | None) -> str:
    """Return the command that fits the recommended method to all rows; "" for a constant."""
    recommended = result.recommended
    if recommended.trivial:
        return ""
    then = " (then predict with --context)" if recommended.context else ""
    own = [] if recommended.kind != "own" else estimators or []
    arguments = ["--from", str(folder), *(part for text in own for part in ("--estimator", text))]
    command = shlex.join(["domainwise", "fit", *arguments, "-o", f"{folder.name}.skops"])
    return f"To fit {recommended.label} to all rows{then}: {command}"


Folder = Annotated[Path, "Results folder written by evaluate."]


@options.command
def compare(
    first: Folder,
    second: Folder,
    *,
    method: Annotated[
        str | None,
        "Compare only this method, which both must have. Default: the best method of each, and all "
        "methods that both have.",
    ] = None,
    out: Annotated[Path | None, "A page to write (.html).", "FILE", "-o"] = None,
    force: options.Force = False,
) -> None:
    """Compare two evaluations, by method and by domain.

    Both must have the same target, domains and metric. Notes say whether the table, the rows and
    the folds are the same. Differences are second minus first, with 95 % intervals.
    """
    from domainwise.evaluation.compare import compare_evaluations
    from domainwise.jobs.store import write_text

    if out is not None:
        common.require("report")
        common.check_output(out, force, ".html")
    comparison = compare_evaluations(first, second, method)
    if out is not None:
        write_text(out, comparison.page())
    common.print_json({**comparison.to_dict(), "files": [str(out)] if out else []}, end=True)
    console = stdout()
    for columns, *rows in comparison.tables():
        cells = (list(map(shown, row)) for row in rows)
        console.print(common.text_table(columns, cells, wrapped=(columns[0], "result")), "")
    console.print(f"[dim]{shown(comparison.legend())}[/]")
    console.print(f"\n[bold]Verdict.[/] {shown(comparison.verdict())}")
    common.print_notes(console, comparison.notes)
    if out is not None:
        common.print_page(out)
