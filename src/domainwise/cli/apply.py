"""The commands predict, transform and adapt: a model on new rows, file to file."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from domainwise.cli import common, options
from domainwise.cli.common import shown, stderr, stdout
from domainwise.cli.dask import DaskOption, connected
from domainwise.cli.info import adapted_in_words, print_facts

#: Findings that are printed; JSON has all.
SHOWN = 20


@dataclass
class ApplyOptions:
    """What both commands take."""

    model: options.ModelArgument
    new: Annotated[
        Path,
        options.argument(
            "Rows with the model's columns: CSV (also .gz), Parquet, Feather, Excel, or a folder."
        ),
    ]
    out: Annotated[
        Path, options.option("Table to write: .csv, .parquet and others.", "--out", "-o")
    ]
    keep: Annotated[options.Names, options.option("Columns to copy, separated by commas.")] = None
    strict: Annotated[
        bool, options.flag("--strict", "Write nothing if rows differ from the source domains.")
    ] = False
    dask: DaskOption = None
    force: options.ForceOption = False
    as_json: options.JsonOption = False


@options.command
def predict(
    *,
    shared: ApplyOptions,
    context: Annotated[
        bool,
        options.flag(
            "--context",
            "Predict each row with the rows of its domain; the table must hold whole domains.",
        ),
    ] = False,
    one_domain: Annotated[
        bool, options.flag("--one-domain", "With --context: all rows are of one domain.")
    ] = False,
    coverage: Annotated[
        float | None,
        options.option(
            "Add prediction sets that should contain the true value in this share of rows, for "
            "example 0.9: low and high, or in_set_... for each class."
        ),
    ] = None,
    reading: options.ReadingOptions,
) -> None:
    """Predict the rows of a table, also of domains the model has not seen.

    Writes a prediction for each row, and for classes their probabilities, or decision values where
    the model has no probabilities. The domain column is copied if there is one, but not needed.
    Large files are read and written in pieces. Rows that differ from all source domains are
    reported on stderr. Rows are predicted one by one, unless --context is given.
    """
    if one_domain and not context:
        raise ValueError("--one-domain needs --context: add it, or omit --one-domain")
    together = ("one" if one_domain else "column") if context else None
    _apply(shared, project=False, coverage=coverage, context=together, **reading.arguments())


@options.command
def transform(*, shared: ApplyOptions, reading: options.ReadingOptions) -> None:
    """Project the rows of a table onto the invariant components of a model."""
    _apply(shared, project=True, **reading.arguments())


@options.command
def adapt(
    *,
    model: options.ModelArgument,
    labelled: Annotated[
        Path,
        options.argument(
            "Rows of the new site with the model's columns and its target; rows without a target "
            "are ignored."
        ),
    ],
    out: Annotated[Path, options.option("Model file to write.", "--out", "-o")],
    site: Annotated[
        Path | None,
        options.option(
            "Unlabelled rows of the site, for models that are used with --context.", "--site"
        ),
    ] = None,
    force: options.ForceOption = False,
    as_json: options.JsonOption = False,
    reading: options.ReadingOptions,
) -> None:
    """Adapt a model to a new site with a few labelled rows.

    One label is enough, and more can be added later by adapting the result. The labelled rows
    should be a random sample of the site. The new file works with predict and info as any model.
    """
    from domainwise.models.table_model import TableModel, labelled_rows

    common.check_output(out, force, [".skops"])
    with common.working(f"adapting {model}"):
        fitted = TableModel.load(model)
        X, y, ignored = labelled_rows(fitted, labelled, **reading.arguments())
        X_site = None if site is None else fitted.read_rows(site, **reading.arguments())
        adapted = fitted.adapt(X, y, X_site=X_site)
        adapted.save(out)
    facts, notes = adapted_in_words(adapted.info), []
    if ignored:
        notes.append(f"{ignored} rows without a target were ignored")
    if as_json:
        common.print_json({"file": str(out), **adapted.info["site"], "ignored": ignored})
        return
    common.print_written(out)
    print_facts(stdout(), facts)
    common.print_notes(stderr(), notes)


def _apply(shared: ApplyOptions, **arguments: Any) -> None:
    """Apply a model; the arguments are those of ``apply_to_file``."""
    new, out = shared.new, shared.out
    with warnings.catch_warnings(record=True) as caught:
        from domainwise.models.apply import ShiftError, apply_to_file
        from domainwise.models.table_model import TableModel
        from domainwise.tables.cells import split_names
        from domainwise.tables.files import FORMATS, table_columns

        common.check_apart(new, out)
        if shared.dask is not None and not out.suffix:
            common.check_part_folder(out, shared.force)
        else:
            common.check_output(out, shared.force, list(FORMATS))
        model = TableModel.load(shared.model)
        columns = table_columns(new, encoding=arguments["encoding"])
        doing = f"{'projecting' if arguments['project'] else 'predicting'} {new}"
        with connected(shared.dask) as client, common.working(doing) as say:
            try:
                applied = apply_to_file(
                    model,
                    new,
                    out,
                    keep=split_names(shared.keep, columns) or (),
                    strict=shared.strict,
                    progress=lambda rows: say(f"{doing}: {rows:,} rows"),
                    client=client,
                    **arguments,
                )
            except ShiftError as error:
                _print_findings(error.findings)
                if shared.as_json:
                    findings = [finding.as_dict() for finding in error.findings]
                    common.print_json({"file": None, "findings": findings})
                raise
    notes = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    reasons = ["--strict checks all rows first"] if shared.strict else []
    reasons += ["--context first summarises each domain"] if arguments.get("context") else []
    if reasons:
        notes.append(f"{new} was read twice: {', and '.join(reasons)}")
    one_by_one = not arguments["project"] and arguments.get("context") is None
    if one_by_one and (model.info.get("context") or {}).get("promised"):
        notes.append(
            "rows were predicted one by one, but the score of this model on held-out domains is "
            "that of predictions with context: add --context, if the table holds whole domains"
        )
    if (coverage := arguments.get("coverage")) is not None:
        notes.append(coverage_in_words(model.info["check"]["calibration"], coverage))
    notes = list(dict.fromkeys(notes + applied.notes))
    if shared.as_json:
        answer = {"file": str(out), "rows": applied.n_rows, "columns": applied.columns}
        findings = [finding.as_dict() for finding in applied.findings]
        common.print_json({**answer, "notes": notes, "findings": findings})
    else:
        stdout().print(
            f"wrote [bold]{shown(out)}[/bold]: {applied.n_rows:,} rows, "
            f"columns {shown(', '.join(applied.columns))}",
            soft_wrap=True,
        )
    common.print_notes(stderr(), notes)
    _print_findings(applied.findings)


def coverage_in_words(calibration: dict[str, Any], coverage: float) -> str:
    """What prediction sets of a coverage promise.

    >>> coverage_in_words({"promise": "approximate", "n_domains": 12}, 0.9)
    'prediction sets are approximate: calibrated on 12 held-out domains, they should contain the \
true value in 90% of the rows of a new domain, on average over domains'
    """
    return (
        f"prediction sets are {calibration['promise']}: calibrated on {calibration['n_domains']} "
        f"held-out domains, they should contain the true value in {coverage:.0%} of the rows of a "
        "new domain, on average over domains"
    )


def _print_findings(findings: Sequence[Any]) -> None:
    for finding in findings[:SHOWN]:
        stderr().print(f"[yellow]shift:[/yellow] {shown(finding)}", soft_wrap=True)
    if len(findings) > SHOWN:
        stderr().print(f"[yellow]shift:[/yellow] {len(findings) - SHOWN} more (--json has all)")
