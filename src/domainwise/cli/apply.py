"""The commands predict, transform and adapt: a model on new rows, file to file."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any

from domainwise.cli import common, options
from domainwise.cli.common import shown, stderr, stdout
from domainwise.cli.dask import connected
from domainwise.cli.info import adapted_in_words

#: Findings that are printed; JSON has all.
SHOWN = 20


@dataclass
class ApplyOptions:
    """Options of predict and transform."""

    model: options.Model
    new: Annotated[
        Path, "Rows with the model's columns: CSV (also .gz), Parquet, Feather, Excel, or a folder."
    ]
    _: KW_ONLY
    out: Annotated[Path, "Table to write: .csv, .parquet and others.", "-o"]
    keep: Annotated[options.Names, "Columns to copy to the output, separated by commas."] = None
    strict: Annotated[bool, "Write nothing if rows differ from the source domains."] = False
    dask: options.Dask = None
    force: options.Force = False


@options.command
def predict(
    shared: ApplyOptions,
    *,
    context: Annotated[
        bool, "Predict all rows of a domain together; the table must contain complete domains."
    ] = False,
    one_domain: Annotated[bool, "With --context: all rows belong to one domain."] = False,
    coverage: Annotated[
        float | None,
        "Add prediction sets that should contain the true value in this share of rows, such as "
        "0.9: columns low and high, or in_set_... for each class.",
        "SHARE",
    ] = None,
    reading: options.ReadingOptions,
) -> None:
    """Predict the rows of a table, including rows of new domains.

    Writes a prediction for each row and, for classification, the probability of each class, or its
    decision value if the model has no probabilities. The domain column is copied, but not required.
    Large files are read and written in pieces. Rows that differ from all source domains are
    reported on stderr. Rows are predicted one by one, unless --context is used.
    """
    if one_domain and not context:
        raise ValueError("--one-domain needs --context: add it, or omit --one-domain")
    batch = ("one" if one_domain else "column") if context else None
    _apply(shared, project=False, coverage=coverage, context=batch, **reading.arguments())


@options.command
def transform(shared: ApplyOptions, *, reading: options.ReadingOptions) -> None:
    """Project the rows of a table onto a model's components.

    Only projections, such as dcm, coir, kpca and their fast forms, have components.
    """
    _apply(shared, project=True, **reading.arguments())


@options.command
def adapt(
    model: options.Model,
    labelled: Annotated[
        Path,
        "Rows of the new site with the model's columns and its target; rows without a target are "
        "ignored.",
    ],
    *,
    out: options.ModelOut,
    site: Annotated[
        Path | None, "Unlabelled rows of the site, for models that are used with --context."
    ] = None,
    force: options.Force = False,
    reading: options.ReadingOptions,
) -> None:
    """Adapt a model to a new site with a few labelled rows.

    One label is enough, and more can be added later by adapting the result. The labelled rows
    should be a random sample of the site. predict and info accept the new file.
    """
    from domainwise.models.table_model import TableModel, labelled_rows

    common.check_output(out, force, ".skops")
    with common.working(f"adapting {model}"):
        fitted = TableModel.load(model)
        X, y, ignored = labelled_rows(fitted, labelled, **reading.arguments())
        X_site = None if site is None else fitted.read_rows(site, **reading.arguments())
        adapted = fitted.adapt(X, y, X_site=X_site)
        adapted.save(out)
    answer = {"file": str(out), **adapted.info["site"], "ignored": ignored}
    common.print_json(answer, end=True)
    common.print_written(out)
    common.print_facts(stdout(), adapted_in_words(adapted.info))
    if ignored:
        common.print_notes(stderr(), [f"{ignored} rows without a target were ignored"])


def _apply(shared: ApplyOptions, *, project: bool, **arguments: Any) -> None:
    """Apply a model; the arguments are those of ``apply_to_file``."""
    new, out = shared.new, shared.out
    with warnings.catch_warnings(record=True) as caught:
        from domainwise.models.apply import ShiftError, apply_to_file
        from domainwise.models.table_model import TableModel
        from domainwise.tables.cells import split_names
        from domainwise.tables.files import FORMATS, table_columns

        common.check_apart(new, out)
        in_parts = shared.dask is not None and not out.suffix
        common.check_output(out, shared.force, *([] if in_parts else FORMATS))
        model = TableModel.load(shared.model)
        columns = table_columns(new, encoding=arguments["encoding"])
        activity = f"{'projecting' if project else 'predicting'} {new}"
        with connected(shared.dask) as client, common.working(activity) as update:
            try:
                applied = apply_to_file(
                    model,
                    new,
                    out,
                    project=project,
                    keep=split_names(shared.keep, columns) or (),
                    strict=shared.strict,
                    progress=lambda rows: update(f"{activity}: {rows:,} rows"),
                    client=client,
                    **arguments,
                )
            except ShiftError as error:
                _print_findings(error.findings)
                findings = [finding.as_dict() for finding in error.findings]
                common.print_json({"file": None, "findings": findings})
                raise
    notes = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    context, coverage = arguments.get("context"), arguments.get("coverage")
    reasons = ["--strict checks all rows first"] if shared.strict else []
    reasons += ["--context first summarises each domain"] if context else []
    if reasons:
        notes.append(f"{new} was read twice: {', and '.join(reasons)}")
    if not project and context is None and (model.info.get("context") or {}).get("promised"):
        notes.append(
            "rows were predicted one by one, but the score of this model on held-out domains is "
            "that of predictions with context: add --context, if the table holds whole domains"
        )
    # A model that was adapted to a site has prediction sets, even if it was fitted with --no-check.
    calibration = (model.info.get("check") or {}).get("calibration")
    if coverage is not None and calibration is not None:
        notes.append(
            f"prediction sets are {calibration['promise']}: calibrated on "
            f"{calibration['n_domains']} held-out domains, they should contain the true value in "
            f"{coverage:.0%} of the rows of a new domain, on average over domains"
        )
    notes = list(dict.fromkeys(notes + applied.notes))
    answer = {"file": str(out), "rows": applied.n_rows, "columns": applied.columns, "notes": notes}
    common.print_json({**answer, "findings": [finding.as_dict() for finding in applied.findings]})
    stdout().print(
        f"wrote [bold]{shown(out)}[/bold]: {applied.n_rows:,} rows, "
        f"columns {shown(', '.join(applied.columns))}",
        soft_wrap=True,
    )
    common.print_notes(stderr(), notes)
    _print_findings(applied.findings)


def _print_findings(findings: Sequence[Any]) -> None:
    for finding in findings[:SHOWN]:
        stderr().print(f"[yellow]shift:[/yellow] {shown(finding)}", soft_wrap=True)
    if len(findings) > SHOWN:
        stderr().print(f"[yellow]shift:[/yellow] {len(findings) - SHOWN} more (--json has all)")
