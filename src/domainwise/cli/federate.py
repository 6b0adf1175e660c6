"""The commands federate plan, statistics, moments and fit: sites that keep their rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from domainwise.cli.common import (
    AutoDropOption,
    DataArgument,
    DatesOption,
    DebugOption,
    DecimalOption,
    DropOption,
    EncodingOption,
    FeaturesOption,
    JsonOption,
    NaOption,
    SeedOption,
    TaskOption,
    check_seed,
    errors,
    parts,
    reading_options,
    reported_errors,
    shown,
    working,
)
from domainwise.cli.outputs import ForceOption, check_output
from domainwise.cli.show import print_model, print_notes, size_in_words

federate = typer.Typer(no_args_is_help=True)

OutOption = Annotated[Path, typer.Option("--out", "-o", help="File to write.", show_default=False)]
PlanOption = Annotated[
    Path, typer.Option("--plan", help="The plan, as whoever leads sent it.", show_default=False)
]
SiteOption = Annotated[
    str | None,
    typer.Option(help="Name of the site; of one domain, that of it.", show_default=False),
]
FilesArgument = Annotated[
    list[Path] | None,
    typer.Argument(help="Files of all sites of this round, one of each.", show_default=False),
]


@federate.command()
def plan(
    source: Annotated[
        Path,
        typer.Argument(
            help="A table with the columns that all sites have; or, with files of the first round, "
            "the plan to merge them into.",
            show_default=False,
        ),
    ],
    out: OutOption,
    files: FilesArgument = None,
    target: Annotated[str | None, typer.Option(help="Column to predict.", metavar="COLUMN")] = None,
    domain: Annotated[str, typer.Option(help="Column that names the domain.")] = "site",
    method: Annotated[
        str, typer.Option(help="invariantridge, fastdcm, fastcoir or fastdica.")
    ] = "invariantridge",
    columns: Annotated[int, typer.Option(help="Columns of the feature map.")] = 500,
    smallest: Annotated[
        int, typer.Option(help="Rows of a domain and class that are told of; fewer are withheld.")
    ] = 10,
    balanced: Annotated[bool, typer.Option(help="Let every class count the same.")] = False,
    more: Annotated[
        Path | None,
        typer.Option(
            help="JSON with more of the plan: kernels, gammas, feature_map, points, candidates, "
            "classes.",
            show_default=False,
        ),
    ] = None,
    task: TaskOption = "auto",
    features: FeaturesOption = None,
    drop: DropOption = None,
    auto_drop: AutoDropOption = False,
    dates: DatesOption = None,
    decimal: DecimalOption = None,
    encoding: EncodingOption = None,
    na: NaOption = None,
    seed: SeedOption = 0,
    force: ForceOption = False,
    debug: DebugOption = False,
) -> None:
    """Make the plan of the first round of a table's columns, or that of the second of files."""
    with reported_errors(debug):
        from domainwise.federated import Plan, merge
        from domainwise.tables.schema import read_table, split_names

        check_output(out, force, [".json"])
        check_seed(seed)
        if files:
            made = merge(Plan.load(source), files)
        elif target is None:
            raise ValueError("name --target, or files of the first round to merge")
        else:
            options = reading_options(decimal, encoding, na)
            frame = read_table(source, encoding=options.pop("encoding"))
            given = json.loads(more.read_text(encoding="utf-8")) if more else {}
            names = list(frame.columns)
            made = Plan.of_table(
                frame,
                target=target,
                domain=domain,
                features=split_names(features, names),
                drop=split_names(drop, names),
                task=task,
                auto_drop=auto_drop,
                dates=parts(dates),
                **options,
                **{
                    "method": method,
                    "n_features": columns,
                    "smallest_cell": smallest,
                    "class_weight": "balanced" if balanced else None,
                    "seed": seed,
                    **{n: tuple(v) if isinstance(v, list) else v for n, v in given.items()},
                },
            )
        _write(out, made.words(), made.save)


@federate.command()
def statistics(
    data: DataArgument,
    plan: PlanOption,
    out: OutOption,
    site: SiteOption = None,
    force: ForceOption = False,
    debug: DebugOption = False,
) -> None:
    """First round: what preprocessing and widths of kernels need of this site's rows."""
    from domainwise import federated

    _site_file(federated.statistics, data, plan, out, site, force, debug)


@federate.command()
def moments(
    data: DataArgument,
    plan: PlanOption,
    out: OutOption,
    site: SiteOption = None,
    force: ForceOption = False,
    debug: DebugOption = False,
) -> None:
    """Second round: the moments of this site's rows, which the model is fitted from."""
    from domainwise import federated

    _site_file(federated.moments, data, plan, out, site, force, debug)


@federate.command()
def fit(
    plan: PlanOption,
    out: OutOption,
    files: FilesArgument = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Fit a model from files of the second round, chosen by leaving sites out."""
    with reported_errors(debug):
        from domainwise import federated

        check_output(out, force, [".skops"])
        with working("fitting, and leaving sites out"):
            model = federated.fit(federated.Plan.load(plan), files or [])
        info = {**model.info, "schema": model.schema.as_dict()}
        if as_json:
            model.save(out)
            typer.echo(json.dumps({"file": str(out), **info}, indent=2))
            return
        print_model(Console(highlight=False), info, brief=True)
        scores = [f"{site} {error:.4g}" for site, error in info["expected_score"].items()]
        _write(
            out,
            [
                f"error on each site without it: {', '.join(scores)}",
                "contains: a function of the features, preprocessing, and of each domain what the "
                "second round told of its distribution",
                "does not contain: rows, or the moments by class",
            ],
            model.save,
        )
        print_notes(errors, info)


def _site_file(
    make: Callable[..., Any],
    data: Path,
    plan: Path,
    out: Path,
    site: str | None,
    force: bool,
    debug: bool,
) -> None:
    with reported_errors(debug):
        from domainwise.federated import Plan
        from domainwise.tables.schema import read_table

        check_output(out, force, [".npz"])
        agreed = Plan.load(plan)
        with working(f"reading {data}"):
            frame = read_table(data, encoding=agreed.schema.encoding)
            file = make(frame, agreed, site=site)
        _write(out, file.words(), file.save)


def _write(out: Path, words: Iterable[str], save: Callable[[Path], None]) -> None:
    """Say what a file contains, and then write it."""
    console = Console(highlight=False)
    for each in words:
        console.print(shown(each), soft_wrap=True)
    save(out)
    console.print(f"\nwrote [bold]{shown(out)}[/bold] ({size_in_words(out)})", soft_wrap=True)
