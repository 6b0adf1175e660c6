"""What the guide's code prints and draws, shown below each block when the site is built.

Blocks of Python on a page share one namespace and run in order. A block of ``console`` holds
commands after ``$``. Both run in an empty folder of the page's own.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import traceback
import warnings
from pathlib import Path
from typing import Any

import look

DOCS = Path(__file__).resolve().parents[1]
#: Written anew by every build, and ignored by git.
FIGURES = DOCS / "guide" / "figures"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$\n", flags=re.MULTILINE | re.DOTALL)
#: Lines of a terminal that depend on the moment: a progress bar, and how long something took.
PASSING = re.compile(r"^.*(━|\d+ of \d+ jobs).*\n", flags=re.MULTILINE)


class GuidePage:
    """Runs the blocks of one page and remembers what they define."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder, self.figures = name, folder, 0
        self.namespace: dict[str, Any] = {"__name__": "__main__"}

    def with_outputs(self, text: str) -> str:
        """The page's text, each block followed by what it printed and drew."""
        return BLOCK.sub(self._with_output, text)

    def _with_output(self, match: re.Match[str]) -> str:
        language, code = match.groups()
        printed, pictures = self._python(code) if language == "python" else self._console(code)
        shown = f":::{{container}} output\n```text\n{printed.rstrip()}\n```\n:::\n"
        return "\n".join([match.group(), shown if printed.strip() else "", *pictures])

    def _python(self, code: str) -> tuple[str, list[str]]:
        import matplotlib.pyplot as plt

        printed = io.StringIO()
        with (
            contextlib.redirect_stdout(printed),
            contextlib.chdir(self.folder),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("default")
            try:
                exec(compile(code, f"docs/guide/{self.name}.md", "exec"), self.namespace)
            except Exception as error:
                raise RuntimeError(f"{self.name}.md: {traceback.format_exc()}") from error
        for warning in caught:
            message = f"{warning.category.__name__}: {warning.message}"
            printed.write(textwrap.fill(message, 100, subsequent_indent="  ") + "\n")
        return printed.getvalue(), [self._save(plt.figure(k)) for k in plt.get_fignums()]

    def _save(self, figure: Any) -> str:
        import matplotlib.pyplot as plt

        self.figures += 1
        path = FIGURES / f"{self.name}-{self.figures}.png"
        title = next((axes.get_title() for axes in figure.axes if axes.get_title()), "")
        figure.savefig(path, dpi=160)
        plt.close(figure)
        return f"![{title or 'Figure of the code above'}](figures/{path.name})\n"

    def _console(self, code: str) -> tuple[str, list[str]]:
        commands = re.sub(r"\\\n\s*", "", code)
        parts = []
        for line in commands.splitlines():
            arguments = ["-m", *line.removeprefix("$ ").split()]
            done = subprocess.run(
                [sys.executable, *arguments],
                cwd=self.folder,
                env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise RuntimeError(f"{self.name}.md: {line}\n{done.stdout}{done.stderr}")
            parts.append(PASSING.sub("", done.stderr + done.stdout).strip("\n"))
        return "\n".join(part for part in parts if part), []


def show_outputs(app: Any, docname: str, source: list[str]) -> None:
    """Put outputs into a page of the guide as Sphinx reads it."""
    folder, _, name = docname.rpartition("/")
    if folder != "guide" or not BLOCK.search(source[0]):
        return
    look.reset({}, name)
    FIGURES.mkdir(exist_ok=True)
    for old in FIGURES.glob(f"{name}-*.png"):
        old.unlink()
    directory = Path(tempfile.mkdtemp(prefix="guide-"))
    try:
        source[0] = GuidePage(name, directory).with_outputs(source[0])
    finally:
        shutil.rmtree(directory)


def setup(app: Any) -> dict[str, Any]:
    """Register the step with Sphinx."""
    app.connect("source-read", show_outputs)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
