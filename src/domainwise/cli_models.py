"""The commands fit, predict, transform and info: models of one's own tables.

Exit codes: 0 done, 1 something failed or was interrupted, 2 the input cannot be used.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from domainwise._cli_common import (
    DataArgument,
    DebugOption,
    DomainOption,
    DropDomainsOption,
    DropOption,
    FeaturesOption,
    JobsOption,
    JsonOption,
    SeedOption,
    TargetOption,
    TaskOption,
    check_seed,
    errors,
    print_plain_notes,
    read_input,
    reported_errors,
    working,
)
from domainwise._cli_dask import DaskOption, connected, folds_on, processes
from domainwise.cli_show import print_facts, print_model, print_notes, size_in_words

ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite the output file.")]
ModelArgument = Annotated[
    Path, typer.Argument(help="A model file that fit has written.", show_default=False)
]
NewArgument = Annotated[
    Path,
    typer.Argument(
        help="Rows with the model's columns: CSV (also .gz), Parquet (also a folder), Feather.",
        show_default=False,
    ),
]
OutTableOption = Annotated[
    Path,
    typer.Option("--out", "-o", help="Table to write; its ending says how.", show_default=False),
]
KeepOption = Annotated[
    list[str] | None,
    typer.Option(help="Columns to copy to the output, with commas between.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for command in (fit, predict, transform, info):
        app.command()(command)


def fit(
    data: DataArgument,
    target: TargetOption,
    domain: DomainOption,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Model file to write.", show_default=False)
    ],
    method: Annotated[
        str, typer.Option(help="One of those above; auto searches the parameters of DCM.")
    ] = "auto",
    predictor: Annotated[
        str,
        typer.Option(help="After a projection: lda, logistic, svm; for numbers: ridge, svm."),
    ] = "auto",
    task: TaskOption = "auto",
    features: FeaturesOption = None,
    drop: DropOption = None,
    drop_domains: DropDomainsOption = None,
    balanced: Annotated[
        bool, typer.Option("--balanced", help="Let every class count the same.")
    ] = False,
    check: Annotated[
        bool, typer.Option(help="Score the method on domains left out, beside a constant.")
    ] = True,
    seed: SeedOption = 0,
    jobs: JobsOption = 1,
    dask: DaskOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Fit a model to a table and write it to one file.

    Missing values, categories and scaling are part of the model. Methods: auto, dcmcv, dcm, coir,
    dica, kpca, the same with fast in front (landmarks, for large tables), invariant,
    invariantridge, svm, linear, boosting, constant.
    """
    with reported_errors(debug):
        from domainwise.models import fit_table

        n_jobs = processes(jobs, dask)
        check_seed(seed)
        _check_output(out, force, [".skops"])
        table = read_input(
            data,
            target=target,
            domain=domain,
            features=features,
            drop=drop,
            drop_domains=drop_domains,
            task=task,
        )
        doing = "fitting, and scoring with domains left out" if check else "fitting"
        with (
            connected(dask, errors) as client,
            working(doing) as say,
            folds_on(client, lambda done: say(f"{doing}: {done} tasks done")),
        ):
            model = fit_table(
                table,
                method=method,
                predictor=predictor,
                balanced=balanced,
                check=check,
                random_state=seed,
                n_jobs=n_jobs,
            )
            model.save(out)
    info = {**model.info, "schema": model.schema.as_dict()}
    if as_json:
        typer.echo(json.dumps({"file": str(out), **info}, indent=2))
    else:
        console = Console(highlight=False)
        print_model(console, info, brief=True)
        console.print(
            f"\nwrote [bold]{escape(str(out))}[/bold] ({size_in_words(out)})", soft_wrap=True
        )
    print_notes(errors, info)


def predict(
    model: ModelArgument,
    new: NewArgument,
    out: OutTableOption,
    keep: KeepOption = None,
    dask: DaskOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Predict the rows of a table, also of domains the model has not seen.

    Writes the prediction of each row, and for classes a probability of each, or a decision value
    where the model has no probabilities. The domain column is copied if there is one, and not
    needed. Large files are read and written piece by piece.
    """
    _apply(model, new, out, keep, dask, force=force, as_json=as_json, debug=debug, project=False)


def transform(
    model: ModelArgument,
    new: NewArgument,
    out: OutTableOption,
    keep: KeepOption = None,
    dask: DaskOption = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Project the rows of a table onto the components that carry over."""
    _apply(model, new, out, keep, dask, force=force, as_json=as_json, debug=debug, project=True)


def info(model: ModelArgument, as_json: JsonOption = False, debug: DebugOption = False) -> None:
    """Print what a model file holds, without loading the model."""
    with reported_errors(debug):
        from domainwise.persistence import read_info

        header = read_info(model)
        if as_json:
            typer.echo(json.dumps({"file": str(model), **header}, indent=2))
            return
        try:
            _print_header(Console(highlight=False), model, header)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(f"{model} is damaged: its description is incomplete") from error


def _print_header(console: Console, model: Path, header: dict[str, Any]) -> None:
    console.print(f"[bold]{escape(str(model))}[/bold] ({size_in_words(model)})\n", soft_wrap=True)
    if "schema" in header["info"]:
        print_model(console, header["info"])
    else:
        print_facts(console, [("model", header["model"]), ("columns", "not recorded")])
    versions = ", ".join(f"{name} {number}" for name, number in header["versions"].items())
    print_facts(console, [("versions", versions)])
    print_notes(console, header["info"])


def _apply(
    model: Path,
    new: Path,
    out: Path,
    keep: Sequence[str] | None,
    dask: str | None,
    *,
    force: bool,
    as_json: bool,
    debug: bool,
    project: bool,
) -> None:
    with reported_errors(debug), warnings.catch_warnings(record=True) as caught:
        from domainwise._apply import apply_to_file
        from domainwise.models import TableModel
        from domainwise.tables import FORMATS, split_names, table_columns

        _check_apart(new, out)
        if dask is not None and not out.suffix:
            _check_folder(out, force)
        else:
            _check_output(out, force, list(FORMATS))
        loaded = TableModel.load(model)
        kept = split_names(keep, table_columns(new)) or ()
        doing = f"{'projecting' if project else 'predicting'} {new}"
        with connected(dask, errors) as client, working(doing) as say:
            done = apply_to_file(
                loaded,
                new,
                out,
                project=project,
                keep=kept,
                progress=lambda rows: say(f"{doing}: {rows:,} rows"),
                client=client,
            )
    said = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    notes = list(dict.fromkeys(said + done.notes))
    if as_json:
        answer = {"file": str(out), "rows": done.n_rows, "columns": done.columns}
        typer.echo(json.dumps({**answer, "notes": notes}, indent=2))
    else:
        Console(highlight=False).print(
            f"wrote [bold]{escape(str(out))}[/bold]: {done.n_rows:,} rows, "
            f"columns {escape(', '.join(done.columns))}",
            soft_wrap=True,
        )
    print_plain_notes(notes)


def _check_output(out: Path, force: bool, endings: list[str]) -> None:
    """Refuse an output that cannot be written, before any work is done."""
    if not any(out.name.lower().endswith(ending) for ending in endings):
        raise ValueError(f"{out}: name an output that ends in {' or '.join(endings)}")
    if out.is_dir():
        raise ValueError(f"{out} is a folder; name a file")
    _check_parent(out)
    if out.exists() and not force:
        raise ValueError(f"{out} exists; use --force to overwrite it, or name another output")


def _check_apart(new: Path, out: Path) -> None:
    """Refuse an output that is the input, or one that is part of the other."""
    if new.exists() and out.exists() and out.samefile(new):
        raise ValueError(f"{out} is the input; name another output")
    if out.resolve() in new.resolve().parents:
        raise ValueError(f"{out} holds the input; name another output")
    if new.resolve() in out.resolve().parents:
        raise ValueError(f"{out} lies in the input; name another output")


def _check_folder(out: Path, force: bool) -> None:
    """Refuse a folder that holds anything but the output of an earlier run."""
    if not out.exists():
        _check_parent(out)
        return
    if not out.is_dir():
        raise ValueError(f"{out} is a file; name another output")
    foreign = [path.name for path in out.iterdir() if not path.match("part-*.parquet")]
    if foreign:
        raise ValueError(f"{out} holds {sorted(foreign)[0]}, too; name a folder of its own")
    if not force:
        raise ValueError(f"{out} exists; use --force to overwrite it, or name another output")


def _check_parent(out: Path) -> None:
    if not out.parent.is_dir():
        raise ValueError(f"there is no folder {out.parent}: make it first, or name another output")
