"""Files and folders that are there complete or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a new file in the same folder to write to, and put it in place at the end.

    If something fails, or the process ends, a file that was at ``path`` before is untouched.

    Parameters
    ----------
    path : path-like
        Where the file shall be.

    Yields
    ------
    temporary : Path
        Write here. Its name ends like that of ``path``.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} to")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file")
    temporary = _beside(path)
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file in one step: an interruption leaves the old one."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def replacing_folder(path: str | Path) -> Iterator[Path]:
    """Give a new folder beside ``path`` to write files into, and put it in place at the end.

    If something fails, a folder that was at ``path`` before is untouched; else it is removed.

    Parameters
    ----------
    path : path-like
        Where the folder shall be.

    Yields
    ------
    temporary : Path
        An empty folder.
    """
    path = Path(path)
    temporary, old = _beside(path), _beside(path)
    temporary.mkdir()
    try:
        yield temporary
        if path.exists():
            os.rename(path, old)
        os.rename(temporary, path)
        _remove(old)
    finally:
        if old.exists() and not path.exists():
            os.rename(old, path)
        _remove(temporary)


def _remove(folder: Path) -> None:
    """Remove a folder, under another name: who is still at work there finds it gone at once."""
    if folder.exists():
        unwanted = _beside(folder)
        os.rename(folder, unwanted)
        shutil.rmtree(unwanted, ignore_errors=True)


def _beside(path: Path) -> Path:
    return path.with_name(f".{uuid.uuid4().hex[:12]}.{path.name}")
