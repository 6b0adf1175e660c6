"""The commands federate plan, statistics, moments and fit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from domainwise.cli import common, options
from domainwise.cli.common import escaped, spinner, stderr, stdout
from domainwise.cli.info import print_model, print_model_notes

federate = typer.Typer(no_args_is_help=True)

PlanFile = Annotated[Path, "The coordinator's plan for this round.", "FILE"]
SiteOut = Annotated[Path, "File to write (.npz).", "FILE", "-o"]
#: Keys in the ``--settings`` file for settings that have no option.
KEYS = "classes, kernels, gammas, feature_map, centres, candidates, class_weight, second_moments"
#: Further keys that the file may contain, for settings that are also options.
OPTION_KEYS = "task, auto_drop, dates, decimal, na"
FEATURES_HELP = """Number of features that approximate the kernel. More features give a better
approximation, but need more rows at each site. Default: at most 500, depending on the sites' row
counts."""
CELL_HELP = """Minimum group size: a site sends nothing about a class, a category or missing values
that occur in fewer rows."""
#: Former names of options, which are still accepted, with a note.
FORMER_OPTIONS = {"columns": "n-features", "smallest": "smallest-cell", "more": "settings"}

command_with_advice = partial(
    options.command, memory_advice="agree on a plan with fewer --n-features, kernels or gammas"
)


def _current_option(name: str) -> str:
    """Return the current name of an option of ``federate plan``."""
    if name in FORMER_OPTIONS:
        note = f"--{name} is now called --{FORMER_OPTIONS[name]}; the old name will be removed"
        common.print_notes(stderr(), [note])
    return FORMER_OPTIONS.get(name, name)


@federate.command(context_settings={"token_normalize_func": _current_option})
@options.command
def plan(
    context: typer.Context,
    source: Annotated[
        Path,
        "First round: a table with the same columns as the sites' tables. Second round: the "
        "first-round plan.",
    ],
    files: Annotated[
        list[Path] | None,
        'Second round: the files that the sites wrote with "federate statistics", one per site.',
    ] = None,
    *,
    out: Annotated[Path, "Plan to write (.json).", "FILE", "-o"],
    target: options.Target = None,
    domain: options.Domain = "site",
    method: Annotated[str, "invariantridge, fastdcm, fastcoir or fastdica."] = "invariantridge",
    n_features: Annotated[int | None, typer.Option(help=FEATURES_HELP, metavar="N", min=1)] = None,
    smallest_cell: Annotated[int, typer.Option(help=CELL_HELP, metavar="N", min=3)] = 10,
    task: options.Task = "auto",
    features: options.FeatureOptions,
    read_options: options.ReadingOptions,
    settings: Annotated[
        Path | None,
        f"JSON file with settings that have no option of their own: {KEYS}. The documentation of "
        "domainwise.federated.Plan describes them.",
        "FILE",
    ] = None,
    seed: options.Seed = 0,
    force: options.Force = False,
) -> None:
    """Write the plan for the first or second round.

    A plan contains the settings that all sites share. The first-round plan is made from a table;
    only its columns matter, so its rows may be made up. The second-round plan is made from the
    first-round plan and the files from the sites.
    """
    from domainwise.federated import Plan, merge
    from domainwise.tables.files import read_table
    from domainwise.tables.names import split_names

    common.check_distinct(source, out)
    common.check_output(out, force, ".json")
    if files:
        options.refuse_options(
            context, {"source", "files", "out", "force"}, "the first-round plan sets this option"
        )
        with spinner("merging the site files"):
            new_plan = merge(Plan.load(source), files)
    elif target is None:
        raise ValueError(
            "for the first round, pass a table and --target; for the second round, pass the "
            "first-round plan and the files that the sites wrote"
        )
    else:
        with spinner(f"reading {source}"):
            fields = {**vars(features), **read_options.arguments(), "task": task, "seed": seed}
            frame = read_table(source, encoding=fields.pop("encoding"))
            for name in ("features", "drop"):
                fields[name] = split_names(fields[name], list(frame.columns))
            fields |= {"domain": domain, "method": method, "n_features": n_features or "auto"}
            fields |= {"dates": common.split_commas(features.dates), "smallest_cell": smallest_cell}
            new_plan = Plan.of_table(frame, target=target, **fields | _read_settings(settings))
    summary = {"plan": new_plan.hash, "merged": new_plan.merged is not None}
    _write(out, new_plan.describe(), new_plan.save, summary)


def _read_settings(path: Path | None) -> dict[str, Any]:
    """Read the ``--settings`` file; lists become tuples."""
    try:
        settings = json.loads(path.read_text(encoding="utf-8")) if path else {}
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON ({error}); correct the file") from None
    accepted_keys = f"{KEYS}, {OPTION_KEYS}".split(", ")
    is_object = isinstance(settings, dict)
    unknown_keys = [key for key in settings if key not in accepted_keys] if is_object else []
    if unknown_keys or not is_object:
        problem = f"the unknown key {unknown_keys[0]!r}" if is_object else repr(settings)
        raise ValueError(
            f"{path} contains {problem}; it must contain a JSON object with some of the keys {KEYS}"
        )
    return {key: tuple(v) if isinstance(v, list) else v for key, v in settings.items()}


def _add_site_command(name: str, help_text: str) -> None:
    """Add a command that a site runs in the first or second round."""

    @command_with_advice
    def site_command(
        data: options.Data,
        *,
        plan: PlanFile,
        out: SiteOut,
        site: Annotated[
            str | None, "Name of this site. Default: the domain, if the table contains only one."
        ] = None,
        encoding: options.Encoding = None,
        accept_disclosure: Annotated[
            bool, "Write the file even if rows could be reconstructed from it."
        ] = False,
        force: options.Force = False,
    ) -> None:
        from domainwise import federated
        from domainwise.tables.files import read_table

        common.check_distinct(data, out)
        common.check_output(out, force, ".npz")
        loaded_plan, make_file = federated.Plan.load(plan), getattr(federated, name)
        with spinner(f"reading {data}"):
            frame = read_table(data, encoding=encoding)
            file = make_file(frame, loaded_plan, site=site, accept_disclosure=accept_disclosure)
        summary = {"site": file.site, "plan": file.plan, **file.content, "notes": file.notes}
        _write(out, file.describe(), file.save, summary)

    federate.command(name, help=help_text)(site_command)


_add_site_command("statistics", "First round: write statistics about this site's columns.")
_add_site_command("moments", "Second round: write sums over this site's rows, for the fit.")


@federate.command()
@command_with_advice
def fit(
    files: Annotated[
        list[Path] | None, 'Files that the sites wrote with "federate moments", one per site.'
    ] = None,
    *,
    plan: PlanFile,
    out: options.ModelOut,
    force: options.Force = False,
) -> None:
    """Fit a model to the second-round files.

    The model's parameters are chosen by holding out each site in turn.
    """
    from domainwise import federated

    common.check_output(out, force, ".skops")
    with spinner("fitting, and scoring on held-out sites"):
        model = federated.fit(federated.Plan.load(plan), files or [])
    info = {**model.info, "schema": model.schema.as_dict()}
    print_model(_console(), info, brief=True)
    error_texts = [f"{site} {error:.4g}" for site, error in info["expected_score"].items()]
    lines = [
        f"error on each held-out site: {', '.join(error_texts)}",
        "contains: the fitted function, the preprocessing, and each domain's second-round sums, "
        "with which new rows are compared",
        "does not contain: rows, or moments by class",
    ]
    _write(out, lines, model.save, info)
    print_model_notes(stderr(), info)


def _console() -> Any:
    """Return the console for file descriptions: stderr with ``--json``, otherwise stdout."""
    return stderr() if common.mode["json"] else stdout()


def _write(
    out: Path, lines: Iterable[str], save: Callable[[Path], Any], summary: dict[str, Any]
) -> None:
    """Print what a file contains, write it, and print the summary with ``--json``."""
    for line in lines:
        _console().print(escaped(line), soft_wrap=True)
    save(out)
    common.print_json({"file": str(out), **summary})
    _console().print()
    common.print_written(out, _console())
