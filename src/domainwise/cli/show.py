"""How the command line shows a model to a person."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from domainwise.cli.common import shown

#: Names of metrics in words, where these are others than the scorer's.
METRICS = {"neg_root_mean_squared_error": "RMSE"}
#: Names listed before "and so many more".
SHOWN = 12


def print_model(console: Console, info: dict[str, Any], *, brief: bool = False) -> None:
    """Print what is known about a model; ``brief`` leaves out lists of columns and domains."""
    from domainwise.models.calibration import sets_in_words

    schema, classes, check = info["schema"], info["classes"], info["check"]
    numeric, categorical, dates = (schema.get(k, []) for k in ("numeric", "categorical", "dates"))
    method = " → ".join(name for name in (info["method"], info["predictor"]) if name)
    kind = "continuous" if classes is None else f"{len(classes)} classes: {_names(classes)}"
    domains = f"{len(info['domains'])} in {schema['domain']}"
    features = f"{len(numeric) + len(categorical)} ({len(numeric)} numeric, "
    features += f"{len(categorical)} categorical)"
    if dates:
        features += f" and of dates the {', '.join(schema['date_parts'])}"
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
        ("prediction sets", sets_in_words(sets) if sets else None),
        *([] if brief else [("seed", info["seed"]), ("written", info["created"])]),
    ]
    print_facts(console, [(name, str(value)) for name, value in facts if value is not None])


def print_facts(console: Console, facts: Sequence[tuple[str, str]]) -> None:
    """Print names and values in two columns."""
    grid = RichTable.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True, min_width=15)
    grid.add_column(overflow="fold")
    for name, value in facts:
        grid.add_row(name, shown(value))
    console.print(grid)


def print_notes(console: Console, info: dict[str, Any]) -> None:
    """Print notes, and a warning if the model is no better than a constant."""
    for note in info.get("notes", []):
        console.print(f"[yellow]note:[/yellow] {shown(note)}", soft_wrap=True)
    check = info.get("check")
    if check is not None and not check["better"]:
        console.print(
            "[bold yellow]warning:[/bold yellow] on domains left out, this model is no better "
            f"than a constant, as far as {check['n_domains']} domains can tell "
            f"({shown(check_in_words(check))}). Predictions for a new domain may be worth "
            "nothing: compare methods with [bold]domainwise evaluate[/bold], or look for "
            "features that mean the same in every domain.",
            soft_wrap=True,
        )


def check_in_words(check: dict[str, Any]) -> str:
    """Scores on domains left out, in one line.

    >>> check_in_words(
    ...     dict(metric="balanced_accuracy", model=0.81, constant=0.5, worst=0.7, worst_domain="B")
    ... )
    'balanced accuracy 0.810, worst 0.700 (B); constant 0.500'

    With an interval of the mean over domains it is ``0.810 (about 95 %: 0.76 to 0.86)``.
    """
    plain = check["metric"].removeprefix("neg_").replace("_", " ")
    name, is_error = METRICS.get(check["metric"], plain), check["metric"].startswith("neg_")
    model, worst, constant = (
        f"{-value:.4g}" if is_error else f"{value:.3f}"
        for value in (check["model"], check["worst"], check["constant"])
    )
    if check.get("low") is not None:
        ends = sorted(-check[end] if is_error else check[end] for end in ("low", "high"))
        model += f" (about 95 %: {ends[0]:.3g} to {ends[1]:.3g})"
    return f"{name} {model}, worst {worst} ({check['worst_domain']}); constant {constant}"


def promise_in_words(calibration: dict[str, Any], coverage: float) -> str:
    """What sets of a coverage promise.

    >>> promise_in_words({"promise": "approximate", "n_domains": 12}, 0.9)
    'prediction sets are approximate: from 12 domains left out, 90% of the rows of a new domain \
are to be in theirs, on average over domains'
    """
    return (
        f"prediction sets are {calibration['promise']}: from {calibration['n_domains']} domains "
        f"left out, {coverage:.0%} of the rows of a new domain are to be in theirs, on average "
        "over domains"
    )


def size_in_words(path: Path) -> str:
    """Size of a file, such as "24 kB"."""
    size = float(path.stat().st_size)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


def _chosen(chosen: dict[str, Any]) -> str:
    # False and the defaults nobody searched say nothing to a reader.
    parts = [
        f"{name.replace('_', ' ')} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in chosen.items()
        if value is not False
    ]
    return f" ({', '.join(parts)})" if parts else ""


def _names(names: Sequence[Any]) -> str:
    shown = ", ".join(str(name) for name in names[:SHOWN])
    return shown + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
