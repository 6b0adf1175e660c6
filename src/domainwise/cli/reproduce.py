"""The commands reproduce, report and datasets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from domainwise.cli import common, options
from domainwise.cli.common import count, escaped, stderr, stdout
from domainwise.cli.dask import resolve_jobs
from domainwise.cli.evaluate import REPORT_NAME, print_evaluation


@options.command
def reproduce(
    table: Annotated[
        str, "Table in the DCM paper: synthetic, parkinsons, gvhd, landmine, oil, or all."
    ],
    *,
    quick: Annotated[bool, "Use fewer repeats and rows, to finish within minutes."] = False,
    repeats: Annotated[int | None, "Repeats per experiment. Default: as in the paper."] = None,
    jobs: Annotated[int, "Number of processes; -1 for one per core.", "-j"] = 1,
    out: Annotated[
        Path | None, "Results folder. Default: domainwise-results/TABLE.", "FOLDER"
    ] = None,
    seed: options.Seed = 0,
    timing: Annotated[bool, "Also measure the time and memory of each method."] = True,
    report: Annotated[bool, "Write the HTML report."] = True,
) -> None:
    """Rerun the experiments in the DCM paper and compare the results.

    The results are compared with those in the paper on domain-based covariance minimization (DCM).
    Each repeat is saved as soon as it is finished. To continue an interrupted run, run the same
    command again. The results do not depend on the number of processes.
    """
    from joblib import effective_n_jobs

    from domainwise.jobs.runner import ProgressBar
    from domainwise.jobs.store import ResultsError, ResultStore
    from domainwise.paper.protocols import select_tables
    from domainwise.paper.reproduce import check_data, make_plan
    from domainwise.paper.reproduce import reproduce as run_plan

    if repeats is not None and repeats < 1:
        raise ValueError(f"--repeats must be at least 1; got {repeats}")
    n_jobs = effective_n_jobs(resolve_jobs(jobs, None))
    tables = select_tables(table)
    if report:
        common.require_extra("report", "--no-report")
    if any(paper_table.data_files for paper_table in tables):
        common.require_extra("data")
    check_data(tables)
    store = ResultStore(out or Path("domainwise-results") / (f"{table}-quick" if quick else table))
    try:
        store.open(root_seed=seed, profile="quick" if quick else "full")
        plan = make_plan(tables, store, quick=quick, root_seed=seed, repeats=repeats, timing=timing)
        n_runs = len(plan.parallel_jobs) + len(plan.serial_jobs)
        status = f"{count(n_runs, 'run')} left, seed {seed}" if n_runs else "all runs are finished"
        stderr().print(f"results: [bold]{escaped(store.path)}[/bold], {status}", soft_wrap=True)
        activity = f"experiments, {n_jobs} {'process' if n_jobs == 1 else 'processes'}"
        with ProgressBar(plan.cost, n_runs, activity) as bar:
            failed_runs = run_plan(
                plan,
                store,
                n_jobs=n_jobs,
                progress=bar,
                before_serial=lambda: bar.describe("time and memory, one run at a time"),
            )
    except ResultsError as error:
        raise ValueError(f"{error} (--out)") from error
    except KeyboardInterrupt:
        stderr().print(
            f"\n[yellow]interrupted[/yellow]; finished runs are in {escaped(store.path)};"
            " run the same command again to continue"
        )
        raise typer.Exit(1) from None
    _publish(store.folder, html=report)
    for run in failed_runs:
        run_name = f"{run['case']} {run.get('setting', 'timing')} {run.get('repeat', '')}"
        stderr().print(
            f"[red]failed[/red]: {escaped(run_name)} {run['method']}: {escaped(run['error'])}"
        )
    if failed_runs:
        raise typer.Exit(1)


@options.command
def report(folder: Annotated[Path, "Results folder written by evaluate or reproduce."]) -> None:
    """Regenerate the tables and the HTML report for a results folder."""
    common.require_extra("report")
    if not folder.is_dir():
        raise ValueError(
            f"{folder} is not a folder; pass a results folder written by evaluate or reproduce"
        )
    from domainwise.evaluation.folder import RESULT_NAME, read_evaluation

    if not (folder / RESULT_NAME).exists():
        _publish(folder, html=True)
        return
    evaluation, contents = read_evaluation(folder)
    page = evaluation.report(folder / REPORT_NAME, title=contents.get("title"))
    common.print_json({**contents, "files": [str(page)]}, then_exit=True)
    print_evaluation(evaluation)
    stdout().print()
    common.print_page(page)


def _publish(folder: Path, *, html: bool) -> None:
    """Write and print the tables and the summary of a results folder from ``reproduce``."""
    from domainwise.paper import sentences
    from domainwise.paper.report import SETTING_TITLES, case_caption, case_table, legend, publish

    outputs, console = publish(folder, html=html), stdout()
    common.print_json(outputs.as_json())
    styles = {"within": "[green]", "outside": "[yellow]", "": ""}
    for view in outputs.run.tables:
        console.print(f"\n[bold underline]{view.table.title}[/]")
        if view.table.stand_in:
            console.print(f"[magenta]stand-in data:[/] {view.table.stand_in}")
        for case in view.cases:
            suffix = " [magenta](stand-in)[/]" if case.stand_in else ""
            setting_title = SETTING_TITLES[case.setting]
            setting_title = setting_title[:1].lower() + setting_title[1:]
            title = f"[bold]{case.case.title}[/]{suffix}, {setting_title}"
            console.print(f"\n{title}: [dim]{case_caption(case)}[/]")
            table = case_table(case)
            rows = [
                [f"{styles[cell.css_class]}{'[bold]' * cell.bold}{cell.text}" for cell in row]
                for row in table.rows
            ]
            console.print(common.text_table(table.columns, rows))
    console.print(f"\n[dim]{legend(outputs.run)}[/]\n")
    for describe in (sentences.describe_run, sentences.agreement, sentences.best_methods):
        for sentence in describe(outputs.run):
            console.print(f"• {sentence}", markup=False)
    console.print(f"\ntables: {escaped(outputs.markdown_path)}", soft_wrap=True)
    if outputs.html_path is not None:
        common.print_page(outputs.html_path)


@options.command
def datasets() -> None:
    """List data sets, and show which of them are on this machine."""
    from domainwise.datasets import list_datasets

    entries = list_datasets()
    json_entries = [
        {**vars(info), "path": info.path and str(info.path), "present": info.present}
        for info in entries
    ]
    common.print_json(json_entries, then_exit=True)
    columns = ("name", "rows", "domains", "features", "classes", "present", "description")
    rows = []
    for info in entries:
        counts = f"{info.rows:,}", str(info.domains), str(info.features), str(info.classes or "–")
        present_text = "[green]yes[/green]" if info.present else "[yellow]no[/yellow]"
        rows.append((info.name, *counts, present_text, info.description))
    stdout().print(common.text_table(columns, rows, text_columns=columns[-1:]))
    if not all(info.present for info in entries):
        stdout().print(
            "\nCopy missing files to the folder $DOMAINWISE_DATA. To see where the data come from, "
            "call the loader of a missing file, such as load_gvhd()."
        )
