"""The console script, which prints an error if a package that it needs is missing."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

#: Packages in the ``cli`` extra.
_CLI_PACKAGES = ("typer", "rich", "click", "skops")


def main() -> None:
    """Run the command line; print an error if the ``cli`` extra is not installed."""
    # Until there is something to clean up, Ctrl-C ends the process without an exception.
    signal.signal(signal.SIGINT, _exit_immediately)
    for stream_name in ("stdout", "stderr"):
        if getattr(sys, stream_name) is None:  # closed: another file would get its descriptor
            setattr(sys, stream_name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        # Characters that the terminal cannot display are printed as escape sequences.
        getattr(sys, stream_name).reconfigure(errors="backslashreplace")
    try:
        from domainwise.cli import app
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in _CLI_PACKAGES:
            raise
        message = f'the command line needs {error.name}: pip install "domainwise[cli]"'
        print(message, file=sys.stderr)
        raise SystemExit(2) from None
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _raise_exit)
    try:
        app()
    except KeyboardInterrupt:  # while Typer builds the command; the command itself handles Ctrl-C
        _exit_immediately(signal.SIGINT, None)


def _exit_immediately(signal_number: int, frame: FrameType | None) -> None:
    os.write(2, b"interrupted before the command started\n")
    os._exit(1)


def _raise_exit(signal_number: int, frame: FrameType | None) -> None:
    # An exception lets context managers remove unfinished files.
    raise SystemExit(128 + signal_number)


if __name__ == "__main__":
    main()
