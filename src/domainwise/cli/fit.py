"""The command fit: a model of one's own table, in one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

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
        str, typer.Option(help="One of those above; auto searches the parameters of DCM.")
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
        bool, typer.Option("--balanced", help="Let every class count the same.")
    ] = False,
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

    Missing values, categories and scaling are part of the model. Methods: auto, dcmcv, dcm, coir,
    dica, kpca, the same with fast in front (landmarks, for large tables), invariant,
    invariantridge, svm, linear, boosting, constant.
    """
    with reported_errors(debug):
        from domainwise.models.table_model import fit_table

        n_jobs = processes(jobs, dask)
        check_seed(seed)
        check_output(out, force, [".skops"])
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
            model = fit_table(
                table,
                method=method,
                predictor=predictor,
                balanced=balanced,
                check=check,
                random_state=seed,
                n_jobs=n_jobs,
            )
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
