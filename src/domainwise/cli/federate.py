"""The commands federate plan, statistics, moments and fit: sites that keep their rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from domainwise.cli.common import (
    DataArgument,
    DebugOption,
    DropOption,
    EncodingOption,
    FeaturesOption,
    SeedOption,
    check_seed,
    errors,
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
FilesArgument = Annotated[
    list[Path] | None,
    typer.Argument(help="Files of all sites of this round, one of each.", show_default=False),
]
SOURCE = "A table with the columns that all sites have; with files, the plan to merge them into."
MORE = (
    "JSON with more of the plan: task, classes, dates, decimal, na, kernels, gammas, centres, "
    "candidates, class_weight."
)


@federate.command()
def plan(
    source: Annotated[Path, typer.Argument(help=SOURCE, show_default=False)],
    out: OutOption,
    files: FilesArgument = None,
    target: Annotated[str | None, typer.Option(help="Column to predict.", metavar="COLUMN")] = None,
    domain: Annotated[str, typer.Option(help="Column that names the domain.")] = "site",
    method: Annotated[
        str, typer.Option(help="invariantridge, fastdcm, fastcoir or fastdica.")
    ] = "invariantridge",
    columns: Annotated[int, typer.Option(help="Columns of the feature map.")] = 500,
    smallest: Annotated[int, typer.Option(help="Withhold domains and classes with fewer.")] = 10,
    features: FeaturesOption = None,
    drop: DropOption = None,
    encoding: EncodingOption = None,
    more: Annotated[Path | None, typer.Option(help=MORE, show_default=False)] = None,
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
            frame = read_table(source, encoding=encoding)
            given = json.loads(more.read_text(encoding="utf-8")) if more else {}
            names = list(frame.columns)
            options: dict[str, Any] = {
                "features": split_names(features, names),
                "drop": split_names(drop, names),
                "method": method,
                "n_features": columns,
                "smallest_cell": smallest,
                "seed": seed,
            }
            options |= {n: tuple(v) if isinstance(v, list) else v for n, v in given.items()}
            made = Plan.of_table(frame, target=target, domain=domain, **options)
        _write(out, made.words(), made.save)


def _site_command(kind: str, about: str) -> None:
    """Add the command of a round, at a site."""

    def command(
        data: DataArgument,
        plan: PlanOption,
        out: OutOption,
        site: Annotated[str | None, typer.Option(help="Name; of one domain, that of it.")] = None,
        encoding: EncodingOption = None,
        force: ForceOption = False,
        debug: DebugOption = False,
    ) -> None:
        with reported_errors(debug):
            from domainwise import federated
            from domainwise.tables.schema import read_table

            check_output(out, force, [".npz"])
            agreed = federated.Plan.load(plan)
            with working(f"reading {data}"):
                frame = read_table(data, encoding=encoding)
                file = getattr(federated, kind)(frame, agreed, site=site)
            _write(out, file.words(), file.save)

    federate.command(kind, help=about)(command)


_site_command("statistics", "First round: what preprocessing needs of this site's rows.")
_site_command("moments", "Second round: what the model is fitted from, of this site's rows.")


@federate.command()
def fit(
    plan: PlanOption,
    out: OutOption,
    files: FilesArgument = None,
    force: ForceOption = False,
    debug: DebugOption = False,
) -> None:
    """Fit a model from files of the second round, chosen by leaving sites out."""
    with reported_errors(debug):
        from domainwise import federated

        check_output(out, force, [".skops"])
        with working("fitting, and leaving sites out"):
            model = federated.fit(federated.Plan.load(plan), files or [])
        info = {**model.info, "schema": model.schema.as_dict()}
        print_model(Console(highlight=False), info, brief=True)
        scores = [f"{site} {error:.4g}" for site, error in info["expected_score"].items()]
        words = [
            f"error on each site without it: {', '.join(scores)}",
            "contains: a function of the features, preprocessing, and of each domain what the "
            "second round told of its distribution",
            "does not contain: rows, or the moments by class",
        ]
        _write(out, words, model.save)
        print_notes(errors, info)


def _write(out: Path, words: Iterable[str], save: Callable[[Path], Any]) -> None:
    """Say what a file contains, and then write it."""
    console = Console(highlight=False)
    for each in words:
        console.print(shown(each), soft_wrap=True)
    save(out)
    console.print(f"\nwrote [bold]{shown(out)}[/bold] ({size_in_words(out)})", soft_wrap=True)
