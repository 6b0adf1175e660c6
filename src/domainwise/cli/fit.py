"""The command fit: a model of one's own table, in one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from domainwise.cli.common import (
    DataArgument,
    DebugOption,
    DomainOption,
    DropDomainsOption,
    DropOption,
    FeaturesOption,
    JobsOption,
    JsonOption,
    SeedOption,
    TargetOption,
    TaskOption,
    check_seed,
    errors,
    read_input,
    reported_errors,
    working,
)
from domainwise.cli.dask import DaskOption, connected, folds_on, processes
from domainwise.cli.outputs import ForceOption, check_output
from domainwise.cli.show import print_model, print_notes, size_in_words


def fit(
    data: DataArgument,
    target: TargetOption,
    domain: DomainOption,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Model file to write.", show_default=False)
    ],
    method: Annotated[
        str, typer.Option(help="One of those above; auto is dcmcv, or fastdcmcv for many rows.")
    ] = "auto",
    predictor: Annotated[
        str,
        typer.Option(help="After a projection: lda, logistic, svm; for numbers: ridge, svm."),
    ] = "auto",
    task: TaskOption = "auto",
    features: FeaturesOption = None,
    drop: DropOption = None,
    drop_domains: DropDomainsOption = None,
    balanced: Annotated[
        bool | None,
        typer.Option(
            "--balanced/--not-balanced",
            help="Let every class count the same; if not given, where the measure does.",
            show_default=False,
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option(help="Score the method on domains left out, beside a constant.")
    ] = True,
    seed: SeedOption = 0,
    jobs: JobsOption = 1,
    dask: DaskOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Fit a model to a table and write it to one file.

    Missing values, categories and scaling are part of the model, and its parameters are chosen as
    evaluate does. Methods: auto, those of evaluate by any of their names, and fastdcmcv, fastcoir,
    fastdica, fastkpca (landmarks, for large tables).
    """
    with reported_errors(debug):
        from domainwise.evaluation.check import check_table
        from domainwise.models.registry import find_method
        from domainwise.models.table_model import fit_table

        n_jobs = processes(jobs, dask)
        check_seed(seed)
        check_output(out, force, [".skops"])
        find_method(method, 0)
        table = read_input(
            data,
            target=target,
            domain=domain,
            features=features,
            drop=drop,
            drop_domains=drop_domains,
            task=task,
        )
        doing = "fitting, and scoring with domains left out" if check else "fitting"
        with (
            connected(dask, errors) as client,
            working(doing) as say,
            folds_on(client, lambda done: say(f"{doing}: {done} tasks done")),
        ):
            options: dict[str, Any] = {
                "method": method,
                "predictor": predictor,
                "class_weight": "auto" if balanced is None else "balanced" if balanced else None,
                "random_state": seed,
                "n_jobs": n_jobs,
            }
            checked = vars(check_table(table, **options)) if check else None
            model = fit_table(table, **options)
            model.info["check"] = checked
            model.save(out)
    info = {**model.info, "schema": model.schema.as_dict()}
    if as_json:
        typer.echo(json.dumps({"file": str(out), **info}, indent=2))
    else:
        console = Console(highlight=False)
        print_model(console, info, brief=True)
        console.print(
            f"\nwrote [bold]{escape(str(out))}[/bold] ({size_in_words(out)})", soft_wrap=True
        )
    print_notes(errors, info)
