"""The command evaluate: which method holds up on an unseen domain, as a table and a page.

Exit codes: 0 done, 1 something failed or was interrupted, 2 the input cannot be used.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as RichTable

from domainwise._cli_dask import DaskOption, connected, folds_on, processes
from domainwise.cli_models import DebugOption, JsonOption, _reported_errors, _working

if TYPE_CHECKING:
    from domainwise.evaluation import Evaluation

_errors = Console(stderr=True, highlight=False)

REPORT_NAME = "report.html"
RESULT_NAME = "evaluation.json"
_ENDINGS = (".gz", ".csv", ".tsv", ".parquet", ".pq", ".feather", ".arrow")
#: Colour of a method's name by its kind.
_COLOURS = {"baseline": "blue", "projection": "red", "machine": "magenta"}


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(evaluate)


def evaluate(
    data: Annotated[
        Path,
        typer.Argument(
            help="A table: CSV (also .gz), Parquet or Feather, told by its ending; or a folder of "
            "Parquet files.",
            show_default=False,
        ),
    ],
    target: Annotated[
        str, typer.Option(help="Column to predict.", metavar="COLUMN", show_default=False)
    ],
    domain: Annotated[
        str,
        typer.Option(
            help="Column that names the domain: site, patient, well.",
            metavar="COLUMN",
            show_default=False,
        ),
    ],
    task: Annotated[str, typer.Option(help="auto, classification or regression.")] = "auto",
    methods: Annotated[
        str | None,
        typer.Option(
            help="Some of those above, with commas between; all if not given.", show_default=False
        ),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="A scorer of scikit-learn; chosen by the target if not given.", show_default=False
        ),
    ] = None,
    features: Annotated[
        list[str] | None,
        typer.Option(
            help="Feature columns, with commas between; all others if not given.",
            show_default=False,
        ),
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(help="Columns to leave out, with commas between.", show_default=False),
    ] = None,
    drop_domains: Annotated[
        list[str] | None,
        typer.Option(help="Domains to leave out, with commas between.", show_default=False),
    ] = None,
    max_rows: Annotated[
        int,
        typer.Option(help="Rows drawn, evenly from the domains, where there are more; 0: all."),
    ] = 2000,
    seed: Annotated[int, typer.Option(help="Seed of every random choice.")] = 0,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Processes; -1: all cores.")] = 1,
    dask: DaskOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder of the report; domainwise-evaluation/NAME if not given.",
            show_default=False,
        ),
    ] = None,
    report: Annotated[bool, typer.Option(help="Write the HTML report.")] = True,
    force: Annotated[bool, typer.Option("--force", help="Overwrite earlier results.")] = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Find out which method holds up on a domain nobody has seen, and what is lost there.

    Every domain is left out in turn (in ten groups where there are more than ten). Methods:
    constant, svm, linear, boosting, kpca, coir, dica, dcm, fastdcm, dcmcv, invariant,
    invariantridge; their parameters are chosen on the other domains only.
    """
    with _reported_errors(debug):
        from domainwise.evaluation import evaluate as run
        from domainwise.evaluation._methods import choose_methods
        from domainwise.tables import load_table, split_names, table_columns

        n_jobs = processes(jobs, dask)
        _check_numbers(seed, max_rows)
        choose_methods(methods)
        if report:
            _require_report()
        folder = out or Path("domainwise-evaluation") / _stem(data)
        files = [folder / RESULT_NAME] + ([folder / REPORT_NAME] if report else [])
        _check_folder(folder, files, force)
        with _working(f"reading {data}"):
            names = table_columns(data)
            table = load_table(
                data,
                target=target,
                domain=domain,
                features=split_names(features, names),
                drop=split_names(drop, names),
                drop_domains=split_names(drop_domains, ()),
                task=task,
            )
        for note in table.notes:
            _errors.print(f"[yellow]note:[/yellow] {note}", soft_wrap=True)
        with connected(dask, _errors) as client, folds_on(client):
            found = run(
                table.X,
                table.y,
                table.sample_domain,
                methods=methods,
                task=table.schema.task,
                scoring=metric,
                n_jobs=n_jobs,
                random_state=seed,
                max_rows=max_rows or None,
            )
        found.notes = [*(f"{note}." for note in table.notes), *found.notes]
        _write(found, folder, report, f"{target} on an unseen {domain}: {data.name}")
    if as_json:
        written = {"files": [str(path) for path in files]}
        typer.echo(json.dumps({**found.to_dict(), **written}, indent=2, ensure_ascii=False))
        return
    console = Console(highlight=False)
    print_evaluation(found, console)
    console.print(f"\nresults: {folder / RESULT_NAME}", soft_wrap=True)
    if report:
        console.print(f"report: [bold]{folder / REPORT_NAME}[/] (open it in a browser)")


def print_evaluation(found: Evaluation, console: Console) -> None:
    """Print the table of methods, the verdict and the notes."""
    show = found.measure.format
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("method", no_wrap=True)
    for name in ("mean", "worst", "spread", "within", "p"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("worst domain")
    for result in found.results:
        mark = " ●" if result is found.baseline else ""
        label = f"[{_COLOURS[result.kind]}]{result.label}[/]{mark}"
        mean = f"[bold]{show(result.mean)}[/]" if result is found.best else show(result.mean)
        table.add_row(
            label,
            mean,
            show(result.worst),
            show(found.measure.sign * result.spread),
            show(result.reference),
            "–" if result.p_value is None else f"{result.p_value:.3f}",
            str(result.worst_domain),
        )
    facts = found.facts
    console.print(
        f"[bold]{found.measure.label}[/] ({found.measure.direction}) on {facts['domains']} domains "
        f"left out, {facts['rows']:,} rows, {facts['task']}\n"
    )
    console.print(table)
    console.print(
        "\n[dim]within: folds inside the left-out domain, with labels from there. p: Wilcoxon over "
        "domains against the best plain method (●).[/]"
    )
    console.print(f"\n[bold]Verdict.[/] {_escaped(found.verdict())}", soft_wrap=False)
    for note in found.notes:
        console.print(f"[yellow]note:[/yellow] {_escaped(note)}")


def _write(found: Evaluation, folder: Path, report: bool, title: str) -> None:
    from domainwise.report.publish import write_atomically

    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / RESULT_NAME, found.to_json() + "\n")
    if report:
        found.report(folder / REPORT_NAME, title=title)


def _check_numbers(seed: int, max_rows: int) -> None:
    if seed < 0:
        raise ValueError(f"--seed must be 0 or more, got {seed}")
    if max_rows < 0:
        raise ValueError(f"--max-rows must be 0 (all) or more, got {max_rows}")


def _check_folder(folder: Path, files: list[Path], force: bool) -> None:
    """Refuse to overwrite, before any work is done."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; name a folder with --out")
    there = [str(path) for path in files if path.exists()]
    if there and not force:
        raise ValueError(
            f"{' and '.join(there)} would be overwritten; use --force to do so, or name another "
            "folder with --out"
        )


def _require_report() -> None:
    missing = [name for name in ("matplotlib", "jinja2") if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(
            f'the report needs {" and ".join(missing)}: pip install "domainwise[report]", or leave '
            "it out with --no-report"
        )


def _stem(data: Path) -> str:
    name = data.name
    while name.lower().endswith(_ENDINGS):
        name = name[: name.rindex(".")]
    return name or data.name


def _escaped(text: Any) -> str:
    from rich.markup import escape

    return escape(str(text))
