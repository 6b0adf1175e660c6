"""The commands federate plan, statistics, moments and fit, for sites that do not share rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from domainwise.cli import common, options
from domainwise.cli.common import shown, stderr, stdout, working
from domainwise.cli.info import print_model, print_model_notes

federate = typer.Typer(no_args_is_help=True)

Files = Annotated[list[Path] | None, "The files that the sites wrote, one per site."]
PlanFile = Annotated[Path, "The coordinator's plan for this round.", "FILE"]
SiteOut = Annotated[Path, "File to write (.npz).", "FILE", "-o"]
MORE = "classes, kernels, gammas, feature_map, centres, candidates, class_weight, second_moments"
#: Settings that also have their own options.
OPTIONS = "task, auto_drop, dates, decimal, na"

of_sites = partial(
    options.command, smaller="agree on a plan with fewer --columns, kernels or gammas"
)


@federate.command()
@options.command
def plan(
    context: typer.Context,
    source: Annotated[
        Path,
        "A table with the columns that all sites have; with files, the plan to merge them into.",
    ],
    files: Files = None,
    *,
    out: Annotated[Path, "Plan to write (.json).", "FILE", "-o"],
    target: options.Target = None,
    domain: options.Domain = "site",
    method: Annotated[str, "invariantridge, fastdcm, fastcoir or fastdica."] = "invariantridge",
    columns: Annotated[
        int | None,
        typer.Option(
            help="Columns of the feature map. Default: as many as the sites' rows allow.",
            metavar="N",
            min=1,
        ),
    ] = None,
    smallest: Annotated[
        int,
        typer.Option(
            help="Sites leave out classes and categories with fewer rows than this.",
            metavar="N",
            min=3,
        ),
    ] = 10,
    task: options.Task = "auto",
    features: options.FeatureOptions,
    reading: options.ReadingOptions,
    more: Annotated[
        Path | None, f"JSON file with further settings of the plan: {MORE}.", "FILE"
    ] = None,
    seed: options.Seed = 0,
    force: options.Force = False,
) -> None:
    """Write the plan of the first or the second round.

    A plan lists what all sites have to agree on. The plan of the first round is made from a table,
    whose rows may be made up. The plan of the second round is made from the first plan and the
    files that the sites wrote with federate statistics.
    """
    from domainwise.federated import Plan, merge
    from domainwise.tables.cells import split_names
    from domainwise.tables.files import read_table

    common.check_apart(source, out)
    common.check_output(out, force, ".json")
    if files:
        options.refuse_options(
            context, "source files out force", "the plan that files are merged into decides"
        )
        with working("merging the files of the sites"):
            new_plan = merge(Plan.load(source), files)
    elif target is None:
        raise ValueError("pass --target to plan from a table, or files of the first round to merge")
    else:
        with working(f"reading {source}"):
            settings = {**vars(features), **reading.arguments(), "task": task, "seed": seed}
            frame = read_table(source, encoding=settings.pop("encoding"))
            for name in ("features", "drop"):
                settings[name] = split_names(settings[name], list(frame.columns))
            settings |= {"domain": domain, "method": method, "n_features": columns or "auto"}
            settings |= {"dates": common.parts_of(features.dates), "smallest_cell": smallest}
            new_plan = Plan.of_table(frame, target=target, **settings | _more_of(more))
    summary = {"plan": new_plan.hash, "merged": new_plan.merged is not None}
    _write(out, new_plan.words(), new_plan.save, summary)


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
    """Add the command that a site runs in one of the rounds."""

    @of_sites
    def at_site(
        data: options.Data,
        *,
        plan: PlanFile,
        out: SiteOut,
        site: Annotated[
            str | None, "Name of this site. Default: its domain, if it has only one."
        ] = None,
        encoding: options.Encoding = None,
        accept_disclosure: Annotated[
            bool, "Write the file even if rows can be reconstructed from it."
        ] = False,
        force: options.Force = False,
    ) -> None:
        from domainwise import federated
        from domainwise.tables.files import read_table

        common.check_apart(data, out)
        common.check_output(out, force, ".npz")
        agreed, make = federated.Plan.load(plan), getattr(federated, kind)
        with working(f"reading {data}"):
            frame = read_table(data, encoding=encoding)
            file = make(frame, agreed, site=site, accept_disclosure=accept_disclosure)
        summary = {"site": file.site, "plan": file.plan, **file.content, "notes": file.notes}
        _write(out, file.words(), file.save, summary)

    federate.command(kind, help=about)(at_site)


_site_command("statistics", "First round: write the column statistics of this site.")
_site_command("moments", "Second round: write the sums that the model is fitted from.")


@federate.command()
@of_sites
def fit(
    files: Files = None,
    *,
    plan: PlanFile,
    out: options.ModelOut,
    force: options.Force = False,
) -> None:
    """Fit a model from the files of the second round.

    Its parameters are chosen by holding out each site in turn.
    """
    from domainwise import federated

    common.check_output(out, force, ".skops")
    with working("fitting, and holding out sites"):
        model = federated.fit(federated.Plan.load(plan), files or [])
    info = {**model.info, "schema": model.schema.as_dict()}
    print_model(_console(), info, brief=True)
    scores = [f"{site} {error:.4g}" for site, error in info["expected_score"].items()]
    words = [
        f"error on each site when it is held out: {', '.join(scores)}",
        "contains: the fitted function, preprocessing, and for each domain the second-round sums "
        "with which new rows are compared",
        "does not contain: rows, or the moments by class",
    ]
    _write(out, words, model.save, info)
    print_model_notes(stderr(), info)


def _console() -> Any:
    """Return the console that describes files: stderr with ``--json``, otherwise stdout."""
    return stderr() if common.mode["json"] else stdout()


def _write(
    out: Path, words: Iterable[str], save: Callable[[Path], Any], summary: dict[str, Any]
) -> None:
    """Print what a file contains, write it, and print JSON if ``--json`` asks for it."""
    for line in words:
        _console().print(shown(line), soft_wrap=True)
    save(out)
    common.print_json({"file": str(out), **summary})
    _console().print()
    common.print_written(out, _console())
