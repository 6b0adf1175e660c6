"""Files that are there complete or not at all."""

from __future__ import annotations

import os
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
    temporary = path.with_name(f".{uuid.uuid4().hex[:12]}.{path.name}")
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
