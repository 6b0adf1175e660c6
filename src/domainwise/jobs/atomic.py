"""Files and folders that are there complete or not at all."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a new file in the same folder to write to, and put it in place at the end.

    If something fails, or the process ends, a file that was at ``path`` before is untouched; so is
    one that somebody else has put there meanwhile. A symbolic link stays one: its target is
    replaced. The new file's name ends like that of ``path``.
    """
    path = Path(path).resolve()
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} to")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file")
    temporary, before = _beside(path), _state(path)
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        with _alone_in(path.parent):
            _refuse_other(path, before)
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

    If something fails, a folder that was at ``path`` before is untouched; else it is removed. As
    with files, somebody else's is left alone, and a symbolic link stays one.
    """
    path = Path(path).resolve()
    temporary, old, before = _beside(path), _beside(path), _state(path)
    temporary.mkdir()
    try:
        yield temporary
        with _alone_in(path.parent):
            _refuse_other(path, before)
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


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep other writers of this package out of a folder, where the system has such locks."""
    lock = None
    with suppress(ImportError, OSError):
        import fcntl

        lock = os.open(folder, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _state(path: Path) -> tuple[int, int] | None:
    """What tells one file or folder from another that takes its place."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def _refuse_other(path: Path, before: tuple[int, int] | None) -> None:
    if _state(path) not in (None, before):
        raise FileExistsError(f"{path} was written by another process meanwhile, and is left as is")


def _beside(path: Path) -> Path:
    return path.with_name(f".{uuid.uuid4().hex[:12]}.{path.name}")
