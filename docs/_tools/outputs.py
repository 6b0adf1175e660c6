"""Run the code in the guide, and insert its output and figures below each block.

The Python blocks of a page share one namespace and run in order. A ``console`` block contains
commands after ``$``. Both run in a temporary folder, one for each page.
"""

from __future__ import annotations

import contextlib
import io
import json
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
#: Rewritten by every build, and ignored by git.
FIGURES = DOCS / "guide" / "figures"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$\n", flags=re.MULTILINE | re.DOTALL)
#: Lines of terminal output that differ between runs: progress bars and times.
PROGRESS = re.compile(r"^.*(━|\d+ of \d+ (?:fits|jobs)).*\n", flags=re.MULTILINE)


class GuidePage:
    """Runs the blocks of one page in one namespace."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder, self.n_figures = name, folder, 0
        self.namespace: dict[str, Any] = {"__name__": "__main__"}

    def with_outputs(self, text: str) -> str:
        """Return the text of the page, with outputs and figures after each block."""
        return BLOCK.sub(self._with_output, text)

    def _with_output(self, match: re.Match[str]) -> str:
        language, code = match.groups()
        run = self._run_python if language == "python" else self._run_console
        printed, figures = run(code)
        output = f":::{{container}} output\n```text\n{printed.rstrip()}\n```\n:::\n"
        return "\n".join([match.group(), output if printed.strip() else "", *figures])

    def _run_python(self, code: str) -> tuple[str, list[str]]:
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
        return printed.getvalue(), [self._save_figure(plt.figure(k)) for k in plt.get_fignums()]

    def _save_figure(self, figure: Any) -> str:
        import matplotlib.pyplot as plt

        self.n_figures += 1
        path = FIGURES / f"{self.name}-{self.n_figures}.png"
        title = next((axes.get_title() for axes in figure.axes if axes.get_title()), "")
        figure.savefig(path, dpi=160)
        plt.close(figure)
        return f"![{title or 'Figure drawn by the code above'}](figures/{path.name})\n"

    def _run_console(self, code: str) -> tuple[str, list[str]]:
        commands = re.sub(r"\\\n\s*", "", code)
        outputs = []
        for line in commands.splitlines():
            arguments = ["-m", *line.removeprefix("$ ").split()]
            result = subprocess.run(
                [sys.executable, *arguments],
                cwd=self.folder,
                env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
            if result.returncode:
                raise RuntimeError(f"{self.name}.md: {line}\n{result.stdout}{result.stderr}")
            printed = PROGRESS.sub("", result.stderr + result.stdout).strip("\n")
            outputs += [textwrap.fill(line, 80) if line else "" for line in printed.splitlines()]
        return "\n".join(outputs), []


def show_outputs(app: Any, docname: str, source: list[str]) -> None:
    """Insert outputs into a guide page when Sphinx reads it."""
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


def draw_opening(app: Any) -> None:
    """Draw the recorded scores at held-out hospitals for the start page, in both themes."""
    import matplotlib.pyplot as plt

    four = json.loads((DOCS / "hospitals.json").read_text(encoding="utf-8"))["four"]
    low, high = four["range"]
    FIGURES.mkdir(exist_ok=True)
    for theme, ink, point, shade in (
        ("light", "#1f2937", "#2f6fdb", "#c3d5f5"),
        ("dark", "#e5e7eb", "#8fb4ff", "#35568f"),
    ):
        look.reset({}, theme)
        figure, axes = plt.subplots(figsize=(5.4, 2.3))  # readable on a phone
        figure.patch.set_alpha(0)
        axes.patch.set_alpha(0)
        axes.barh(-1.2, high - low, 0.5, low, color=shade)
        axes.plot(four["mean"], -1.2, "d", color=ink)
        for height, (name, score) in enumerate(sorted(four["sites"].items(), key=lambda s: s[1])):
            error = 1.96 * four["errors"][name]
            axes.errorbar(score, height, xerr=error, fmt="s", color=point, markersize=7)
            axes.text(high + 0.02, height, f"{score:.2f}", color=ink, va="center")
        axes.text(high + 0.02, -1.2, f"{low:.2f} to {high:.2f}", color=ink, va="center")
        names = sorted(four["sites"], key=four["sites"].__getitem__)
        axes.set_yticks([*range(4), -1.2], [*names, "a fifth hospital (90 %)"])
        axes.set(xlim=(0.5, 1.0), ylim=(-1.7, 3.5))
        axes.set_xlabel(f"{four['metric']} of {four['method']} at a held-out hospital", color=ink)
        axes.tick_params(colors=ink, left=False)
        axes.spines["bottom"].set_color(ink)
        for side in ("left", "top", "right"):
            axes.spines[side].set_visible(False)
        figure.savefig(FIGURES / f"opening-{theme}.png", dpi=160)
        plt.close(figure)


def setup(app: Any) -> dict[str, Any]:
    """Connect the functions above to build events."""
    app.connect("builder-inited", draw_opening)
    app.connect("source-read", show_outputs)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
