"""The commands federate plan, statistics, moments and fit: sites that keep their rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from domainwise.cli import options
from domainwise.cli.common import (
    check_apart,
    check_output,
    check_seed,
    read_input,
    shown,
    size_in_words,
    stderr,
    stdout,
    working,
)
from domainwise.cli.info import print_model, print_model_notes

federate = typer.Typer(no_args_is_help=True)

OutOption = Annotated[Path, options.option("File to write.", "--out", "-o")]
PlanOption = Annotated[Path, options.option("The plan that the coordinator sent.", "--plan")]
FilesArgument = Annotated[
    list[Path] | None, options.argument("Files of all sites of this round, one of each.")
]
SOURCE = "A table with the columns that all sites have; with files, the plan to merge them into."
MORE = "classes, kernels, gammas, feature_map, centres, candidates, class_weight, second_moments"
#: Have options of their own, too.
OPTIONS = "task, auto_drop, dates, decimal, na"

of_sites = partial(
    options.command, smaller="agree on a plan with fewer --columns, kernels or gammas"
)


@federate.command()
@options.command
def plan(
    *,
    context: typer.Context,
    source: Annotated[Path, options.argument(SOURCE)],
    out: OutOption,
    files: FilesArgument = None,
    target: Annotated[str | None, typer.Option(help="Column to predict.", metavar="COLUMN")] = None,
    domain: Annotated[str, typer.Option(help="Column that names the domain.")] = "site",
    method: Annotated[
        str, typer.Option(help="invariantridge, fastdcm, fastcoir or fastdica.")
    ] = "invariantridge",
    columns: Annotated[
        int | None,
        typer.Option(
            help="Number of columns of the feature map. Default: as many as sites may send.", min=1
        ),
    ] = None,
    smallest: Annotated[
        int,
        typer.Option(help="Fewest rows of a class or category that sites report.", min=3),
    ] = 10,
    task: options.TaskOption = "auto",
    features: options.FeaturesOption = None,
    drop: options.DropOption = None,
    auto_drop: options.AutoDropOption = False,
    dates: options.DatesOption = None,
    reading: options.ReadingOptions,
    more: Annotated[
        Path | None, options.option(f"JSON file with further settings of the plan: {MORE}.")
    ] = None,
    seed: options.SeedOption = 0,
    force: options.ForceOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Write the plan of the first round from a table, or that of the second round from files."""
    from domainwise.federated import Plan, merge

    check_apart(source, out)
    check_output(out, force, [".json"])
    check_seed(seed)
    if files:
        _refuse_beside_files(context)
        with working("merging the files of the sites"):
            new_plan = merge(Plan.load(source), files)
    elif target is None:
        raise ValueError("name --target, or files of the first round to merge")
    else:
        names = ("target", "domain", "method", "seed", "task", "features", "drop", "auto_drop")
        plan_options: dict[str, Any] = {
            name: value for name, value in locals().items() if name in names
        }
        plan_options |= {
            "n_features": columns or "auto",
            "smallest_cell": smallest,
            "more": _more_of(more),
        }
        new_plan = read_input(
            source, read=_plan_of, dates=dates, **plan_options, **reading.arguments()
        )
    summary = {"plan": new_plan.hash, "merged": new_plan.merged is not None}
    _write(out, new_plan.words(), new_plan.save, summary if as_json else None)


def _plan_of(source: Path, encoding: str | None, more: dict[str, Any], **plan_options: Any) -> Any:
    from domainwise.federated import Plan
    from domainwise.tables.cells import split_names
    from domainwise.tables.files import read_table

    frame = read_table(source, encoding=encoding)
    plan_options |= {
        name: split_names(plan_options[name], list(frame.columns)) for name in ("features", "drop")
    }
    return Plan.of_table(frame, **plan_options | more)


def _refuse_beside_files(context: typer.Context) -> None:
    """Refuse options of a new plan: the one that files are merged into has decided them."""
    for name in context.params.keys() - {"source", "files", "out", "force", "as_json", "debug"}:
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE":
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"leave out {option}: the plan that files are merged into decides")


def _more_of(path: Path | None) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_text(encoding="utf-8")) if path else {}
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    accepted = f"{MORE}, {OPTIONS}".split(", ")
    is_object = isinstance(settings, dict)
    if unknown := [n for n in settings if n not in accepted] if is_object else [settings]:
        raise ValueError(f"{path} holds {unknown[0]!r}: expected an object with keys from {MORE}")
    return {name: tuple(v) if isinstance(v, list) else v for name, v in settings.items()}


def _site_command(kind: str, about: str) -> None:
    """Add the command of a round, at a site."""

    @of_sites
    def at_site(
        data: options.DataArgument,
        plan: PlanOption,
        out: OutOption,
        site: Annotated[str | None, typer.Option(help="Name. Default: the only domain.")] = None,
        encoding: options.EncodingOption = None,
        accept_disclosure: Annotated[
            bool,
            typer.Option(
                "--accept-disclosure",
                help="Write the file even if it discloses rows.",
            ),
        ] = False,
        force: options.ForceOption = False,
        as_json: options.JsonOption = False,
    ) -> None:
        from domainwise import federated
        from domainwise.tables.files import read_table

        check_apart(data, out)
        check_output(out, force, [".npz"])
        agreed = federated.Plan.load(plan)
        with working(f"reading {data}"):
            frame = read_table(data, encoding=encoding)
            accepted = {"accept_disclosure": accept_disclosure}
            file = getattr(federated, kind)(frame, agreed, site=site, **accepted)
        summary = {"site": file.site, "plan": file.plan, **file.content, "notes": file.notes}
        _write(out, file.words(), file.save, summary if as_json else None)

    federate.command(kind, help=about)(at_site)


_site_command("statistics", "First round: write this site's statistics for preprocessing.")
_site_command("moments", "Second round: write this site's sums, from which the model is fitted.")


@federate.command()
@of_sites
def fit(
    plan: PlanOption,
    out: OutOption,
    files: FilesArgument = None,
    force: options.ForceOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Fit a model from files of the second round, chosen by holding out sites."""
    from domainwise import federated

    check_output(out, force, [".skops"])
    with working("fitting, and holding out sites"):
        model = federated.fit(federated.Plan.load(plan), files or [])
    info = {**model.info, "schema": model.schema.as_dict()}
    print_model(stderr() if as_json else stdout(), info, brief=True)
    scores = [f"{site} {error:.4g}" for site, error in info["expected_score"].items()]
    words = [
        f"error on each site when it is held out: {', '.join(scores)}",
        "contains: the fitted function, preprocessing, and for each domain the second-round sums "
        "with which new rows are compared",
        "does not contain: rows, or the moments by class",
    ]
    _write(out, words, model.save, info if as_json else None)
    print_model_notes(stderr(), info)


def _write(
    out: Path, words: Iterable[str], save: Callable[[Path], Any], summary: dict[str, Any] | None
) -> None:
    """Say what a file contains, and then write it; JSON has stdout for itself, and comes last."""
    console = stdout() if summary is None else stderr()
    for line in words:
        console.print(shown(line), soft_wrap=True)
    save(out)
    if summary is not None:
        typer.echo(json.dumps({"file": str(out), **summary}, indent=2))
    console.print(f"\nwrote [bold]{shown(out)}[/bold] ({size_in_words(out)})", soft_wrap=True)
