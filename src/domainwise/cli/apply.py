"""The commands predict, transform and adapt, which apply a model to new rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any

from domainwise.cli import common, options
from domainwise.cli.common import dask_client, escaped, stderr, stdout
from domainwise.cli.info import describe_adaptation

#: Maximum number of findings that are printed; JSON contains all of them.
MAX_FINDINGS = 20


@dataclass
class ApplyOptions:
    """Options that predict and transform share."""

    model: options.Model
    table: Annotated[
        Path,
        "Table with the model's feature columns: a CSV (or .csv.gz), Parquet, Feather or Excel "
        "file, or a folder of Parquet files.",
    ]
    _: KW_ONLY
    out: Annotated[Path, "Table to write, such as a .csv or .parquet file.", "-o"]
    keep: Annotated[options.Names, "Columns to copy to the output, separated by commas."] = None
    strict: Annotated[bool, "Write no output if any row differs from all source domains."] = False
    dask: options.Dask = None
    force: options.Force = False


@options.command
def predict(
    apply_options: ApplyOptions,
    *,
    context: Annotated[
        bool,
        "Predict all rows of a domain together. The table must contain the domain column (or use "
        "--one-domain) and all rows of each domain.",
    ] = False,
    one_domain: Annotated[bool, "With --context: treat all rows as one domain."] = False,
    coverage: Annotated[
        float | None,
        "Add prediction sets that should contain the true value for this fraction of the rows, "
        "such as 0.9. New columns: low and high (regression), or in_set_CLASS for each class.",
        "FRACTION",
    ] = None,
    threshold: options.Threshold = None,
    read_options: options.ReadingOptions,
) -> None:
    """Predict the target for rows from known or new domains.

    The output contains a prediction for each row and, for classification, the probability of each
    class (or its decision value, if the model does not estimate probabilities). Probabilities have
    the class frequencies of the source domains (the domains in the training data); the prediction
    depends on the model's decision rule, which info shows, or on --threshold. The table does not
    need a domain column; if it has one, the column is copied to the output. Large files are read
    and written in chunks. Rows that differ from all source domains (the domains in the training
    data) are reported on stderr. Each row is predicted individually, unless --context is used.
    """
    if one_domain and not context:
        raise ValueError("--one-domain requires --context; add --context or remove --one-domain")
    context_mode = ("one" if one_domain else "column") if context else None
    arguments = {"coverage": coverage, "context": context_mode, **read_options.arguments()}
    _apply(apply_options, project=False, threshold=threshold, **arguments)


@options.command
def transform(apply_options: ApplyOptions, *, read_options: options.ReadingOptions) -> None:
    """Project the rows of a table onto a model's components.

    The model must be a projection, such as dcm, coir, kpca or one of their fast variants. Rows that
    differ from all source domains (the domains in the training data) are reported on stderr.
    """
    _apply(apply_options, project=True, **read_options.arguments())


@options.command
def adapt(
    model: options.Model,
    labelled: Annotated[
        Path,
        "Table of labelled rows from the new site, with the model's feature and target columns. "
        "Rows without a target are ignored.",
    ],
    *,
    out: options.ModelOut,
    site: Annotated[
        Path | None, "Table of unlabelled rows from the site, needed for predict --context."
    ] = None,
    force: options.Force = False,
    read_options: options.ReadingOptions,
) -> None:
    """Adapt a model to a new site, using a few labelled rows.

    One labelled row is enough. To add labels later, adapt the new model again. The labelled rows
    should be a random sample of rows from the site. The new model can be used like a model written
    by fit.
    """
    from domainwise.models.table_model import TableModel, read_labelled_rows

    common.check_output(out, force, ".skops")
    with common.spinner(f"adapting {model}"):
        original_model, arguments = TableModel.load(model), read_options.arguments()
        encoding = arguments.pop("encoding")
        site_model = original_model.with_options(**arguments)
        X, y, n_ignored = read_labelled_rows(site_model, labelled, encoding=encoding)
        X_site = None if site is None else site_model.read_rows(site, encoding=encoding)
        adapted_model = original_model.adapt(X, y, X_site=X_site)
        adapted_model.save(out)
    output = {"file": str(out), **adapted_model.info["site"], "ignored": n_ignored}
    common.print_json(output, then_exit=True)
    common.print_written(out)
    common.print_facts(stdout(), describe_adaptation(adapted_model.info))
    if n_ignored:
        common.print_notes(stderr(), [f"ignored {common.count(n_ignored, 'row')} without a target"])


def _apply(
    apply_options: ApplyOptions, *, project: bool, threshold: float | None = None, **arguments: Any
) -> None:
    """Apply a model to a table; other arguments are passed to ``apply_to_file``."""
    table_path, out = apply_options.table, apply_options.out
    with warnings.catch_warnings(record=True) as caught_warnings:
        from domainwise.models.apply import ShiftError, apply_to_file
        from domainwise.models.table_model import TableModel
        from domainwise.tables.files import FORMATS

        common.check_distinct(table_path, out)
        writes_folder = apply_options.dask is not None and not out.suffix
        common.check_output(out, apply_options.force, *([] if writes_folder else FORMATS))
        model = TableModel.load(apply_options.model)
        model = model if threshold is None else model.with_threshold(threshold)
        activity = f"{'projecting' if project else 'predicting'} {table_path}"
        with dask_client(apply_options.dask) as client, common.spinner(activity) as update:
            try:
                outcome = apply_to_file(
                    model,
                    table_path,
                    out,
                    project=project,
                    keep=apply_options.keep or (),
                    strict=apply_options.strict,
                    progress=lambda n_rows: update(f"{activity}: {common.count(n_rows, 'row')}"),
                    client=client,
                    **arguments,
                )
            except ShiftError as error:
                _print_findings(error.findings)
                findings = [finding.as_dict() for finding in error.findings]
                common.print_json({"file": None, "findings": findings})
                raise
    notes = [str(w.message) for w in caught_warnings if issubclass(w.category, UserWarning)]
    context, coverage = arguments.get("context"), arguments.get("coverage")
    if not project and context is None and (model.info.get("context") or {}).get("promised"):
        notes.append(
            "rows were predicted without context, but the score of this model on held-out domains "
            "was measured with context; add --context if the table contains all rows of each domain"
        )
    # A model adapted to a site has prediction sets even if it was fitted with --no-check.
    calibration = (model.info.get("check") or {}).get("calibration")
    if coverage is not None and calibration is not None:
        notes.append(
            f"the coverage of prediction sets is {calibration['promise'].partition(',')[0]}: they "
            "were calibrated on "
            f"{calibration['n_domains']} held-out domains and should contain the true value for "
            f"{100 * coverage:g} % of the rows from a new domain, on average over domains"
        )
    notes = list(dict.fromkeys(notes + outcome.notes))
    output = {"file": str(out), "rows": outcome.n_rows, "columns": outcome.columns, "notes": notes}
    common.print_json({**output, "findings": [finding.as_dict() for finding in outcome.findings]})
    stdout().print(
        f"wrote [bold]{escaped(out)}[/bold]: {common.count(outcome.n_rows, 'row')}, "
        f"columns {escaped(', '.join(outcome.columns))}",
        soft_wrap=True,
    )
    common.print_notes(stderr(), notes)
    _print_findings(outcome.findings)


def _print_findings(findings: Sequence[Any]) -> None:
    for finding in findings[:MAX_FINDINGS]:
        common.print_line(stderr(), f"[yellow]shift:[/yellow] {escaped(finding)}")
    if (n_more := len(findings) - MAX_FINDINGS) > 0:
        findings_text = common.count(n_more, "more finding")
        stderr().print(f"[yellow]shift:[/yellow] {findings_text} (use --json to list all)")
