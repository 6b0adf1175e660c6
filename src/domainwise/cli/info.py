"""The commands info and export: what a model file contains, and the model as an ONNX graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from domainwise.cli import common, options
from domainwise.cli.common import shown, stdout

if TYPE_CHECKING:
    from rich.console import Console

#: Names of metrics that differ from the scorer's.
METRICS = {"neg_root_mean_squared_error": "RMSE"}
#: Names listed before "and … more".
SHOWN = 12


@options.command
def info(model: options.ModelArgument, as_json: options.JsonOption = False) -> None:
    """Print what a model file contains, without loading the model."""
    from domainwise.model_files.persistence import read_info

    header = read_info(model)
    if as_json:
        common.print_json({"file": str(model), **header})
        return
    console = stdout()
    try:
        size = common.size_in_words(model)
        console.print(f"[bold]{shown(model)}[/bold] ({size})\n", soft_wrap=True)
        if "schema" in header["info"]:
            print_model(console, header["info"])
        else:
            print_facts(console, [("model", header["model"]), ("columns", "not recorded")])
        versions = ", ".join(f"{name} {number}" for name, number in header["versions"].items())
        rows = header.get("training_rows")
        contained = "unknown: the file was written by an older version" if rows is None else "none"
        facts = [("training rows", f"contained: {', '.join(rows)}" if rows else contained)]
        if targets := header.get("training_targets"):
            words = "contained, with held-out predictions and without features"
            facts.append(("training targets", f"{words}: {', '.join(targets)}"))
        print_facts(console, [*facts, ("versions", versions)])
        print_model_notes(console, header["info"])
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(f"{model} is damaged: its description is incomplete") from error


@options.command
def export(
    model: options.ModelArgument,
    out: Annotated[Path, options.option("ONNX file.", "--out", "-o")],
    force: options.ForceOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Write a model as an ONNX graph, which predicts without Python."""
    common.check_output(out, force, [".onnx"])
    from domainwise.export import to_onnx
    from domainwise.jobs.store import replacing
    from domainwise.model_files.persistence import load

    onnx_model = to_onnx(load(model))
    with replacing(out) as temporary:
        temporary.write_bytes(onnx_model.SerializeToString())
    names = {
        kind: [v.name for v in getattr(onnx_model.graph, kind)] for kind in ("input", "output")
    }
    if as_json:
        common.print_json({"file": str(out), **names})
        return
    common.print_written(out)
    print_facts(stdout(), [(kind, shown(", ".join(listed))) for kind, listed in names.items()])


def print_model(console: Console, info: dict[str, Any], *, brief: bool = False) -> None:
    """Print what is known about a model; ``brief`` leaves out lists of columns and domains."""
    from domainwise.calibration.quantiles import sets_in_words

    schema, classes, check = info["schema"], info["classes"], info["check"]
    numeric, categorical, dates = (schema.get(k, []) for k in ("numeric", "categorical", "dates"))
    method = " → ".join(name for name in (info["method"], info["predictor"]) if name)
    kind = "continuous" if classes is None else f"{len(classes)} classes: {_names(classes)}"
    domains = f"{len(info['domains'])} in {schema['domain']}"
    features = f"{len(numeric) + len(categorical)} ({len(numeric)} numeric, "
    features += f"{len(categorical)} categorical)"
    if dates:
        features += f" and {', '.join(schema['date_parts'])} of dates"
    if not brief:
        domains += ": " + _names([f"{name} ({count})" for name, count in info["domains"]])
        features += ": " + _names([*numeric, *categorical, *dates])
    weights, sets = info.get("class_weight"), (check or {}).get("calibration")
    facts = [
        ("method", method + _chosen(info["chosen"])),
        ("class weights", f"{weights}: every class counts the same" if weights else None),
        ("components", info["n_components"]),
        ("target", f"{schema['target']} ({kind})"),
        ("domains", domains),
        ("features", features),
        ("rows", f"{info['n_rows']:,}"),
        ("unseen domains", check_in_words(check) if check else None),
        ("context", context_in_words(info["context"]) if info.get("context") else None),
        ("prediction sets", sets_in_words(sets) if sets else None),
        *([] if brief else [("seed", info["seed"]), ("written", info["created"])]),
    ]
    if "site" in info:
        facts += adapted_in_words(info)
    print_facts(console, [(name, str(value)) for name, value in facts if value is not None])


def context_in_words(context: dict[str, Any]) -> str:
    """What context assumes, and what scores with it refer to.

    >>> context_in_words({"batch_size": 60, "promised": False})
    'predict --context assumes that a batch looks like the whole domain; its score refers to 60 \
rows of a domain'
    """
    words = "predict --context assumes that a batch looks like the whole domain"
    size = context.get("batch_size")
    return words if size is None else f"{words}; its score refers to {size:,} rows of a domain"


def adapted_in_words(info: dict[str, Any]) -> list[tuple[str, str]]:
    """What labels of a site have changed, as names and values.

    >>> gain = [[0, -3.0, -4.0, -2.0], [5, -2.0, -2.5, -1.5], [10, -1.9, -2.4, -1.4]]
    >>> site = {"n_labels": 7, "corrections": {"plain": [0.12, 0.0]}, "label_gain": gain}
    >>> for fact in adapted_in_words({"site": site, "classes": None}):
    ...     print(*fact)
    site labels 7
    correction level +0.12
    expected RMSE 3 without labels, 2 with 5
    """
    site, classes = info["site"], info["classes"]
    values = site["corrections"]["plain"]
    if classes is None:
        level, slope = values
        learnt = f"level {level:+.3g}" + (f", slope {slope:+.3g}" if slope else "")
    else:
        learnt = ", ".join(
            f"{name} {value:+.2f}" for name, value in zip(classes, values, strict=True)
        )
        learnt = f"log-odds by class: {learnt}" if any(values) else "none: sites hardly differ"
    facts = [("site labels", str(site["n_labels"])), ("correction", learnt)]
    rows = [row for row in site["label_gain"] if row[0] <= site["n_labels"] and row[1] == row[1]]
    if rows:
        name = "RMSE" if classes is None else "balanced accuracy"
        sign = -1 if classes is None else 1
        text = f"{sign * rows[0][1]:.3g} without labels"
        if len(rows) > 1:
            text += f", {sign * rows[-1][1]:.3g} with {rows[-1][0]}"
        facts.append((f"expected {name}", text))
    return facts


def print_facts(console: Console, facts: Sequence[tuple[str, str]]) -> None:
    """Print names and values in two columns."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True, min_width=15)
    grid.add_column(overflow="fold")
    for name, value in facts:
        grid.add_row(name, shown(value))
    console.print(grid)


def print_model_notes(console: Console, info: dict[str, Any]) -> None:
    """Print notes, and a warning if the model is no better than a constant."""
    common.print_notes(console, info.get("notes", []))
    check = info.get("check")
    if check is not None and not check["better"]:
        console.print(
            "[bold yellow]warning:[/bold yellow] on held-out domains this model is no better than "
            f"a constant, as far as {check['n_domains']} domains can show "
            f"({shown(check_in_words(check))}). Do not rely on its predictions for a new domain: "
            "compare methods with [bold]domainwise evaluate[/bold], or look for features that mean "
            "the same in every domain.",
            soft_wrap=True,
        )


def check_in_words(check: dict[str, Any]) -> str:
    """Scores on held-out domains, in one line.

    >>> check_in_words(
    ...     dict(metric="balanced_accuracy", model=0.81, constant=0.5, worst=0.7, worst_domain="B")
    ... )
    'balanced accuracy 0.810, worst 0.700 (B); constant 0.500'

    Where the range of one new domain is known it is ``0.810 on average, 0.61 to 0.95 at one new
    domain (90 %)``.
    """
    plain = check["metric"].removeprefix("neg_").replace("_", " ")
    name, is_error = METRICS.get(check["metric"], plain), check["metric"].startswith("neg_")
    model, worst, constant = (
        f"{-value:.4g}" if is_error else f"{value:.3f}"
        for value in (check["model"], check["worst"], check["constant"])
    )
    if check.get("range") is not None:
        ends = sorted(-end if is_error else end for end in check["range"])
        model += f" on average, {ends[0]:.3g} to {ends[1]:.3g} at one new domain (90 %)"
    return f"{name} {model}, worst {worst} ({check['worst_domain']}); constant {constant}"


def _chosen(chosen: dict[str, Any]) -> str:
    # False and the defaults nobody searched say nothing to a reader.
    parts = [
        f"{name.replace('_', ' ')} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in chosen.items()
        if value is not False
    ]
    return f" ({', '.join(parts)})" if parts else ""


def _names(names: Sequence[Any]) -> str:
    listed = ", ".join(str(name) for name in names[:SHOWN])
    return listed + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
