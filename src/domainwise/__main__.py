"""The console script. It starts without optional packages, so that it can report missing ones."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

#: Packages that the command line itself needs.
_CLI_PACKAGES = ("typer", "rich", "click", "skops")


def main() -> None:
    """Run the command line; print an error if the extra ``cli`` is not installed."""
    # Until there is something to clean up, Ctrl-C ends the process; after that it is an exception.
    signal.signal(signal.SIGINT, _stop)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed: the next file opened would get its descriptor
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        # Characters that the terminal cannot show are printed as codes.
        getattr(sys, name).reconfigure(errors="backslashreplace")
    try:
        from domainwise.cli import app
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in _CLI_PACKAGES:
            raise
        print(
            f'the command line needs {error.name}: pip install "domainwise[cli]"', file=sys.stderr
        )
        raise SystemExit(2) from None
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _leave)
    app()


def _stop(number: int, frame: FrameType | None) -> None:
    os.write(2, b"interrupted: nothing was done\n")
    os._exit(1)


def _leave(number: int, frame: FrameType | None) -> None:
    # An exception, so that unfinished files are removed on the way out.
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
