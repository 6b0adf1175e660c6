"""The commands predict and transform: a model on new rows, file to file."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from domainwise.cli import options
from domainwise.cli.common import errors, print_plain_notes, shown, working
from domainwise.cli.dask import DaskOption, connected
from domainwise.cli.outputs import check_apart, check_output, check_part_folder
from domainwise.cli.show import promise_in_words

NewArgument = Annotated[
    Path,
    options.argument(
        "Rows with the model's columns: CSV (also .gz), Parquet, Feather, Excel, or a folder."
    ),
]
OutTableOption = Annotated[
    Path, options.option("Table to write; its ending says how.", "--out", "-o")
]
KeepOption = Annotated[
    options.Names, options.option("Columns to copy to the output, with commas between.")
]
StrictOption = Annotated[
    bool,
    typer.Option("--strict", help="Check first, and write nothing if rows are unlike the sources."),
]
ContextOption = Annotated[
    bool,
    typer.Option(
        "--context", help="Predict rows together with those of their domain; reads twice."
    ),
]
OneDomainOption = Annotated[
    bool, typer.Option("--one-domain", help="With --context: all rows are of one domain.")
]
CoverageOption = Annotated[
    float | None,
    options.option("Add low and high, or in_set_... of each class, for this share of rows: 0.9."),
]
#: Findings that are printed; JSON has all.
SHOWN = 20


@options.command
def predict(
    *,
    model: options.ModelArgument,
    new: NewArgument,
    out: OutTableOption,
    keep: KeepOption = None,
    reading: options.ReadingOptions,
    context: ContextOption = False,
    one_domain: OneDomainOption = False,
    coverage: CoverageOption = None,
    strict: StrictOption = False,
    dask: DaskOption = None,
    force: options.ForceOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Predict the rows of a table, also of domains the model has not seen.

    Writes the prediction of each row, and for classes a probability of each, or a decision value
    where the model has no probabilities. The domain column is copied if there is one, and not
    needed. Large files are read and written piece by piece. What rows have that no source had
    is said on stderr. Rows are predicted one by one, unless --context is given.
    """
    if one_domain and not context:
        raise ValueError("--one-domain says what --context is about: give both")
    together = ("one" if one_domain else "column") if context else None
    asked = {"project": False, "coverage": coverage, "context": together, "strict": strict}
    _apply(model, new, out, keep, dask, force, as_json, **asked, **reading.arguments())


@options.command
def transform(
    *,
    model: options.ModelArgument,
    new: NewArgument,
    out: OutTableOption,
    keep: KeepOption = None,
    reading: options.ReadingOptions,
    strict: StrictOption = False,
    dask: DaskOption = None,
    force: options.ForceOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Project the rows of a table onto the components that carry over."""
    asked = {"project": True, "strict": strict, **reading.arguments()}
    _apply(model, new, out, keep, dask, force, as_json, **asked)


def _apply(
    model: Path,
    new: Path,
    out: Path,
    keep: Sequence[str] | None,
    dask: str | None,
    force: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Apply a model; what is asked are arguments of ``apply_to_file``."""
    with warnings.catch_warnings(record=True) as caught:
        from domainwise.models.apply import ShiftError, apply_to_file
        from domainwise.models.table_model import TableModel
        from domainwise.tables.schema import FORMATS, split_names, table_columns

        check_apart(new, out)
        if dask is not None and not out.suffix:
            check_part_folder(out, force)
        else:
            check_output(out, force, list(FORMATS))
        loaded = TableModel.load(model)
        kept = split_names(keep, table_columns(new, encoding=asked["encoding"])) or ()
        doing = f"{'projecting' if asked['project'] else 'predicting'} {new}"
        with connected(dask, errors) as client, working(doing) as say:
            try:
                done = apply_to_file(
                    loaded,
                    new,
                    out,
                    keep=kept,
                    progress=lambda rows: say(f"{doing}: {rows:,} rows"),
                    client=client,
                    **asked,
                )
            except ShiftError as error:
                _print_findings(error.findings)
                if as_json:
                    found = [finding.as_dict() for finding in error.findings]
                    typer.echo(json.dumps({"file": None, "findings": found}, indent=2))
                raise
    said = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    why = ["--strict checks all rows first"] if asked["strict"] else []
    why += ["--context learns first what each domain is like"] if asked.get("context") else []
    if why:
        said.append(f"{new} was read twice: {', and '.join(why)}")
    if (coverage := asked.get("coverage")) is not None:
        said.append(promise_in_words(loaded.info["check"]["calibration"], coverage))
    notes = list(dict.fromkeys(said + done.notes))
    if as_json:
        answer = {"file": str(out), "rows": done.n_rows, "columns": done.columns}
        found = [finding.as_dict() for finding in done.findings]
        typer.echo(json.dumps({**answer, "notes": notes, "findings": found}, indent=2))
    else:
        Console(highlight=False).print(
            f"wrote [bold]{shown(out)}[/bold]: {done.n_rows:,} rows, "
            f"columns {shown(', '.join(done.columns))}",
            soft_wrap=True,
        )
    print_plain_notes(notes)
    _print_findings(done.findings)


def _print_findings(findings: Sequence[Any]) -> None:
    for finding in findings[:SHOWN]:
        errors.print(f"[yellow]shift:[/yellow] {shown(finding)}", soft_wrap=True)
    if len(findings) > SHOWN:
        errors.print(f"[yellow]shift:[/yellow] {len(findings) - SHOWN} more (--json has all)")
