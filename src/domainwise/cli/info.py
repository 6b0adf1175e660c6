"""The commands info and export: what a model file holds, and the model as an ONNX graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from domainwise.cli.common import shown
from domainwise.cli.options import ForceOption, JsonOption, ModelArgument, command, option
from domainwise.cli.outputs import check_output
from domainwise.cli.show import print_facts, print_model, print_notes, size_in_words


@command
def info(model: ModelArgument, as_json: JsonOption = False) -> None:
    """Print what a model file holds, without loading the model."""
    from domainwise.model_files.persistence import read_info

    header = read_info(model)
    if as_json:
        typer.echo(json.dumps({"file": str(model), **header}, indent=2))
        return
    try:
        _print_header(Console(highlight=False), model, header)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{model} is damaged: its description is incomplete") from error


def _print_header(console: Console, model: Path, header: dict[str, Any]) -> None:
    console.print(f"[bold]{shown(model)}[/bold] ({size_in_words(model)})\n", soft_wrap=True)
    if "schema" in header["info"]:
        print_model(console, header["info"])
    else:
        print_facts(console, [("model", header["model"]), ("columns", "not recorded")])
    versions = ", ".join(f"{name} {number}" for name, number in header["versions"].items())
    print_facts(console, [("versions", versions)])
    print_notes(console, header["info"])


@command
def export(
    model: ModelArgument,
    out: Annotated[Path, option("ONNX file.", "--out", "-o")],
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a model as an ONNX graph, which predicts without Python."""
    check_output(out, force, [".onnx"])
    from domainwise.export import to_onnx
    from domainwise.jobs.store import replacing
    from domainwise.model_files.persistence import load

    made = to_onnx(load(model))
    with replacing(out) as temporary:
        temporary.write_bytes(made.SerializeToString())
    names = {k: [v.name for v in getattr(made.graph, k)] for k in ("input", "output")}
    if as_json:
        typer.echo(json.dumps({"file": str(out), **names}, indent=2))
        return
    console = Console(highlight=False)
    console.print(f"wrote [bold]{shown(out)}[/bold] ({size_in_words(out)})", soft_wrap=True)
    print_facts(console, [(kind, shown(", ".join(each))) for kind, each in names.items()])
