"""The console script. It starts without any extra, to be able to say which one is missing."""

from __future__ import annotations

import sys

#: What the command line itself needs.
_CLI_PACKAGES = ("typer", "rich", "click", "skops")


def main() -> None:
    """Run the command line, or say that the extra ``cli`` is not installed."""
    try:
        from domainwise.cli import app
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in _CLI_PACKAGES:
            raise
        print(
            f'the command line needs {error.name}: pip install "domainwise[cli]"',
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    app()


if __name__ == "__main__":
    main()
