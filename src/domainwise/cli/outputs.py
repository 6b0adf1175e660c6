"""Outputs of commands: refused before any work is done where they cannot be written."""

from __future__ import annotations

from pathlib import Path


def check_output(out: Path, force: bool, endings: list[str]) -> None:
    """Refuse an output that cannot be written, before any work is done."""
    if not any(out.name.lower().endswith(ending) for ending in endings):
        raise ValueError(f"{out}: name an output that ends in {' or '.join(endings)}")
    if out.exists() and not out.is_file():
        raise ValueError(f"{out} is {'a folder' if out.is_dir() else 'no plain file'}; name a file")
    check_parent(out)
    if out.exists() and not force:
        raise ValueError(f"{out} exists; use --force to overwrite it, or name another output")


def check_apart(new: Path, out: Path) -> None:
    """Refuse an output that is the input, or one that is part of the other."""
    if new.exists() and out.exists() and out.samefile(new):
        raise ValueError(f"{out} is the input; name another output")
    if out.resolve() in new.resolve().parents:
        raise ValueError(f"{out} holds the input; name another output")
    if new.resolve() in out.resolve().parents:
        raise ValueError(f"{out} lies in the input; name another output")


def check_part_folder(out: Path, force: bool) -> None:
    """Refuse a folder that holds anything but the output of an earlier run."""
    if not out.exists():
        check_parent(out)
        return
    if not out.is_dir():
        raise ValueError(f"{out} is a file; name another output")
    foreign = [path.name for path in out.iterdir() if not path.match("part-*.parquet")]
    if foreign:
        raise ValueError(f"{out} holds {sorted(foreign)[0]}, too; name a folder of its own")
    if not force:
        raise ValueError(f"{out} exists; use --force to overwrite it, or name another output")


def check_parent(out: Path) -> None:
    """Refuse an output in a folder that does not exist."""
    if not out.parent.is_dir():
        raise ValueError(f"there is no folder {out.parent}: make it first, or name another output")
