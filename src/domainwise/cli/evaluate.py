"""The command evaluate: which method holds up on an unseen domain, as a table and a page.

Exit codes: 0 done, 1 something failed or was interrupted, 2 the input cannot be used.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as RichTable

from domainwise.cli import common, options
from domainwise.cli.dask import DaskOption, connected, folds_on, processes
from domainwise.cli.recipe import digest, next_step, own_methods

if TYPE_CHECKING:
    from domainwise.evaluation import Evaluation

REPORT_NAME = "report.html"
_ENDINGS = (".gz", ".csv", ".tsv", ".parquet", ".pq", ".feather", ".arrow", ".xlsx")
#: Colour of a method's name by its kind.
_COLOURS = {"baseline": "blue", "projection": "red", "machine": "magenta", "own": "green"}


@options.command
def evaluate(
    *,
    data: options.DataArgument,
    target: Annotated[str, options.TARGET],
    domain: Annotated[str, options.DOMAIN],
    task: options.TaskOption = "auto",
    methods: Annotated[
        str | None, options.option("Some of those above, with commas between; all if not given.")
    ] = None,
    estimator: Annotated[
        options.Names,
        options.option(
            "A model of your own to compare, too: package.module:factory, or a model file. May be "
            "given more than once.",
            metavar="WHERE",
        ),
    ] = None,
    metric: Annotated[
        str | None,
        options.option(
            "Scorers of scikit-learn, with commas between; chosen by the target if not given. "
            "Weights of classes follow the first."
        ),
    ] = None,
    inner_metric: Annotated[
        str | None,
        options.option(
            "A scorer by which parameters are chosen; a smooth one if not given (log loss or "
            "squared error)."
        ),
    ] = None,
    positive: options.PositiveOption = None,
    columns: options.ColumnOptions,
    reading: options.ReadingOptions,
    max_rows: Annotated[
        int, typer.Option(help="Rows drawn, evenly from the domains, where there are more; 0: all.")
    ] = 2000,
    seed: options.SeedOption = 0,
    jobs: options.JobsOption = 1,
    dask: DaskOption = None,
    out: Annotated[
        Path | None,
        options.option(
            "Folder of the report; domainwise-evaluation/NAME if not given.", "--out", "-o"
        ),
    ] = None,
    report: Annotated[bool, typer.Option(help="Write the HTML report.")] = True,
    quick: Annotated[
        bool, typer.Option("--quick", help="A first answer, from few rows and splits.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Begin anew where there are other results.")
    ] = False,
    as_json: options.JsonOption = False,
) -> None:
    """Find out which method holds up on a domain nobody has seen, and what is lost there.

    Every domain is left out in turn (in ten groups where there are more than ten). Methods:
    constant, svm, linear, boosting, kpca, coir, dica, dcm, fastdcm, dcmcv, invariant,
    invariantridge, ensemble; their parameters are chosen on the other domains only. The ensemble
    is measured twice: row by row, and with the rows of the left-out domain at hand (+context).

    Finished jobs are in the folder at once: the same command goes on where it was stopped, with the
    same numbers. With another --metric it computes that from the predictions there.
    """
    from domainwise.evaluation import evaluate as run
    from domainwise.evaluation.folder import JOBS, RESULT_NAME
    from domainwise.jobs.store import write_text
    from domainwise.models.registry import choose_methods
    from domainwise.tables.schema import ONE_CLASS

    n_jobs = processes(jobs, dask)
    common.check_seed(seed)
    if max_rows < 0:
        raise ValueError(f"--max-rows must be 0 (all) or more, got {max_rows}")
    chosen = choose_methods([*choose_methods(methods), *own_methods(estimator)])
    if report:
        common.require("report", "--no-report")
    folder = out or Path("domainwise-evaluation") / _stem(data)
    files = [folder / RESULT_NAME] + ([folder / REPORT_NAME] if report else [])
    # Whether jobs there are of this command is told when the table is read.
    _check_folder(folder, files, force or (folder / JOBS).is_dir())
    asked: dict[str, Any] = {"target": target, "domain": domain, "task": task}
    asked |= {**vars(columns), **reading.arguments()}
    table = common.read_input(data, **asked)
    common.print_plain_notes(table.notes)
    with connected(dask, common.errors) as client, folds_on(client):
        found = run(
            table.X,
            table.y,
            table.sample_domain,
            methods=chosen,
            task=table.schema.task,
            scoring=[name.strip() for name in metric.split(",")] if metric else None,
            n_jobs=n_jobs,
            random_state=seed,
            max_rows=max_rows or None,
            pos_label=positive,
            quick=quick,
            out=folder,
            force=force,
            inner_scoring=inner_metric,
        )
    found.next_step = next_step(found, folder)
    # Of domains with one class the evaluation speaks itself.
    told = (f"{note[0].upper()}{note[1:]}." for note in table.notes if ONE_CLASS not in note)
    found.notes = [*told, *found.notes]
    title = f"{target} on an unseen {domain}: {data.name}"
    # The result, and all that is needed to make its models again.
    read = {"path": str(data.absolute()), "sha256": digest(data), "asked": asked}
    models = {"table": read, "estimators": list(estimator or ())}
    stored = {**found.to_dict(), **models, "title": title}
    write_text(folder / RESULT_NAME, json.dumps(stored, indent=2, ensure_ascii=False) + "\n")
    console = Console(highlight=False)
    if as_json:
        written = {"files": [str(path) for path in files]}
        typer.echo(json.dumps({**stored, **written}, indent=2))
    else:
        print_evaluation(found, console)
    if report:
        try:
            found.report(folder / REPORT_NAME, title=title)
        except Exception as error:
            raise common.Unfinished(
                f"the page could not be drawn ({type(error).__name__}: {error}); the results are "
                f"whole in {folder}, and domainwise report {folder} tries again"
            ) from error
    if as_json:
        return
    console.print(f"\nresults: {common.shown(files[0])}", soft_wrap=True)
    if report:
        console.print(f"report: [bold]{common.shown(files[1])}[/] (open it in a browser)")


def print_evaluation(found: Evaluation, console: Console) -> None:
    """Print what looks wrong in the table, the methods, the verdict and the notes."""
    facts = found.facts
    for fault in found.differences.get("faults", ()):
        console.print(f"[yellow]look at the table:[/yellow] {common.shown(fault['words'])}")
    console.print(
        f"[bold]{found.measure.label}[/] ({found.measure.direction}) on {facts['domains']} domains "
        f"left out, {facts['rows']:,} rows, {facts['task']}\n"
    )
    console.print(_scores_table(found))
    console.print(
        "\n[dim]seen: where other rows of the domain were seen, in random folds. p: Wilcoxon over "
        "domains against the best plain method (●).[/]"
    )
    console.print(f"\n[bold]Verdict.[/] {common.shown(found.verdict())}", soft_wrap=False)
    for other in found.others:
        console.print(f"\n[bold]{common.shown(other.measure.label)}[/] of the same predictions")
        console.print(_scores_table(other))
    for note in found.notes:
        console.print(f"[yellow]note:[/yellow] {common.shown(note)}")


def _scores_table(found: Evaluation) -> RichTable:
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("method", no_wrap=True)
    for name in ("mean", "worst", "spread", "seen", "p"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("worst domain")
    for result in found.results:
        mark = " ●" if result is found.baseline else ""
        label = f"[{_COLOURS[result.kind]}]{common.shown(result.label)}[/]{mark}"
        mean, worst, domain, seen, p = found.cells(result)
        mean = f"[bold]{mean}[/]" if result is found.best else mean
        spread = found.show(found.measure.sign * result.spread)
        table.add_row(label, mean, worst, spread, seen, p, common.shown(domain))
    return table


def _check_folder(folder: Path, files: list[Path], force: bool) -> None:
    """Refuse to overwrite what is not an earlier run's, before any work is done."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; name a folder with --out")
    for path in files:
        if path.is_dir():
            raise ValueError(f"{path} is a folder, where a file has to be; name another --out")
    there = [str(path) for path in files if path.exists()]
    if there and not force:
        raise ValueError(
            f"{' and '.join(there)} would be overwritten; use --force to do so, or name another "
            "folder with --out"
        )


def _stem(data: Path) -> str:
    name = data.name
    while name.lower().endswith(_ENDINGS):
        name = name[: name.rindex(".")]
    return name or data.name
