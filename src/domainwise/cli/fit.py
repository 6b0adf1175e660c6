"""The command fit: a model of one's own table, in one file."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from domainwise.cli import options
from domainwise.cli.common import check_seed, errors, read_input, shown, working
from domainwise.cli.dask import DaskOption, connected, folds_on, processes
from domainwise.cli.outputs import check_output
from domainwise.cli.recipe import Recipe
from domainwise.cli.show import print_model, print_notes, size_in_words


@options.command
def fit(
    *,
    out: Annotated[Path, options.option("Model file to write.", "--out", "-o")],
    data: Annotated[
        Path | None, options.argument("A table, as evaluate takes it; may be left out with --from.")
    ] = None,
    source: Annotated[
        Path | None,
        options.option(
            "Fit what evaluate has measured: its folder names the table, columns, measure and "
            "seed, and the method is the best one unless --method names another.",
            "--from",
            metavar="FOLDER",
        ),
    ] = None,
    target: Annotated[str | None, options.TARGET] = None,
    domain: Annotated[str | None, options.DOMAIN] = None,
    method: Annotated[
        str,
        typer.Option(help="One of those above; auto is ensemble, or invariantridge for many rows."),
    ] = "auto",
    predictor: Annotated[
        str, typer.Option(help="After a projection: lda, logistic, svm; for numbers: ridge, svm.")
    ] = "auto",
    task: options.TaskOption = "auto",
    columns: options.ColumnOptions,
    reading: options.ReadingOptions,
    balanced: Annotated[
        bool | None,
        options.option(
            "Let every class count the same; if not given, where the measure does.",
            "--balanced/--not-balanced",
        ),
    ] = None,
    positive: options.PositiveOption = None,
    check: Annotated[
        bool, typer.Option(help="Score the method on domains left out, beside a constant.")
    ] = True,
    seed: options.SeedOption = 0,
    jobs: options.JobsOption = 1,
    dask: DaskOption = None,
    force: options.ForceOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Fit a model to a table and write it to one file.

    Missing values, categories and scaling are part of the model, and its parameters are chosen as
    evaluate does. Methods: auto, those of evaluate by any of their names, and fastdcmcv, fastcoir,
    fastdica, fastkpca (landmarks, for large tables).
    """
    from domainwise.evaluation.compare import check_table, compare_with_constant
    from domainwise.jobs.store import replacing
    from domainwise.models.registry import find_method
    from domainwise.models.table_model import fit_table

    n_jobs = processes(jobs, dask)
    check_seed(seed)
    check_output(out, force, [".skops"])
    asked: dict[str, Any] = {"target": target, "domain": domain, "task": task}
    asked |= {**vars(columns), **reading.arguments()}
    arguments: dict[str, Any] = {
        "predictor": predictor,
        "class_weight": "auto" if balanced is None else "balanced" if balanced else None,
        "pos_label": positive,
        "random_state": seed,
    }
    measured, recipe = "", None if source is None else Recipe(source)
    if recipe is None:
        if data is None or target is None or domain is None:
            raise ValueError("name a table, --target and --domain, or an evaluation with --from")
        find_method(method, 0)
        arguments["method"] = method
    else:
        _refuse_beside_recipe(asked, arguments)
        data, asked = recipe.data(data, force), recipe.asked
        measured = recipe.find(None if method == "auto" else method)
        arguments = {**recipe.options, "method": recipe.method(measured, force)}
    large = None
    if dask is not None and recipe is None and find_spec("dask"):
        large = _beyond_memory(data, asked)
    table = read_input(data, **asked) if large is None else large.table
    doing = "fitting, and scoring with domains left out" if check else "fitting"
    with (
        replacing(out) as unfinished,
        connected(dask, errors) as client,
        working(doing) as say,
        folds_on(client, lambda done: say(f"{doing}: {done} tasks done")),
    ):
        checked = None
        if check and recipe is not None:
            scores, constant = recipe.scores(measured), recipe.scores("constant")
            if scores and constant:
                checked = compare_with_constant(
                    recipe.recipe["scoring"],
                    scores,
                    constant,
                    recipe.found(measured).get("calibration"),
                )
        if large is None:
            model = fit_table(table, **arguments, n_jobs=n_jobs)
        else:
            model = large.fit(client, **arguments)
            arguments["method"] = model.info["method"]
        if check and checked is None:
            checked = check_table(table, **arguments, n_jobs=n_jobs)
        model.info["check"] = None if checked is None else vars(checked)
        if checked is not None and recipe is not None and measured != arguments["method"].key:
            model.info["notes"].append(
                f"scores on left-out domains are those of {measured}, which has the rows of a "
                "new domain at hand: predict with --context"
            )
        model.save(unfinished)
    info = {**model.info, "schema": model.schema.as_dict()}
    if as_json:
        typer.echo(json.dumps({"file": str(out), **info}, indent=2))
    else:
        console = Console(highlight=False)
        print_model(console, info, brief=True)
        console.print(f"\nwrote [bold]{shown(out)}[/bold] ({size_in_words(out)})", soft_wrap=True)
    print_notes(errors, info)


def _beyond_memory(data: Path, asked: dict[str, Any]) -> Any:
    """Look at a table that does not fit memory; None for one that does."""
    from domainwise.models.large_table import LargeTable, exceeds_memory

    return read_input(data, **asked, read=LargeTable.open) if exceeds_memory(data) else None


def _refuse_beside_recipe(asked: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Refuse what would make another model than the one that was measured."""
    usual = {"task": "auto", "predictor": "auto", "class_weight": "auto"}
    words = {"class_weight": "balanced", "pos_label": "positive", "random_state": "seed"}
    for name, value in (asked | arguments).items():
        if (value or None) != usual.get(name):
            given_as = words.get(name, name).replace("_", "-")
            raise ValueError(f"leave out --{given_as}: the evaluation named by --from decides it")
