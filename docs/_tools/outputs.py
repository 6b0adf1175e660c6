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


def draw_opening(app: Any) -> None:
    """Draw the picture of the start page in two themes: a model at held-out hospitals."""
    import matplotlib.pyplot as plt
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import KFold, cross_val_score

    from domainwise.datasets import load_heart
    from domainwise.scoring.statistics import expected_range
    from domainwise.selection import domain_cross_validate

    heart, model = load_heart(), HistGradientBoostingClassifier(random_state=0)
    folds = KFold(10, shuffle=True, random_state=0)
    usual = cross_val_score(model, heart.data, heart.target, cv=folds).mean()
    held_out = domain_cross_validate(model, heart.data, heart.target, heart.sample_domain)
    low, high = expected_range(held_out.scores) or (0.0, 1.0)
    FIGURES.mkdir(exist_ok=True)
    for theme, ink, accent, shade in (
        ("light", "#1f2937", "#c2402b", "#d3e0f8"),
        ("dark", "#e5e7eb", "#f0907e", "#27406b"),
    ):
        look.reset({}, theme)
        figure, axes = plt.subplots(figsize=(7.2, 2.5))
        figure.patch.set_alpha(0)
        axes.patch.set_alpha(0)
        axes.axvspan(low, high, color=shade)
        axes.text((low + high) / 2, 0.85, "90 % range for one new hospital", color=ink, ha="center")
        axes.axvline(usual, color=accent, linewidth=2)
        axes.text(usual, 1.06, f"random folds: {usual:.2f}", color=accent, ha="center")
        axes.scatter(held_out.scores, [0.35] * 4, s=70, color="#5b8def", zorder=3)
        order = held_out.scores.argsort()
        for place, domain in enumerate(order):
            name, score = held_out.domains[domain], held_out.scores[domain]
            height, align = ((0.5, "bottom"), (0.2, "top"))[place % 2]
            label = f"{name}\n{score:.2f}"
            axes.text(score, height, label, color=ink, ha="center", va=align, fontsize=9)
        axes.set(xlim=(0.67, 0.83), ylim=(-0.1, 1), yticks=[])
        axes.set_xlabel("accuracy at a hospital that the model has not seen", color=ink)
        axes.tick_params(colors=ink)
        for side in ("left", "top", "right"):
            axes.spines[side].set_visible(False)
        figure.savefig(FIGURES / f"opening-{theme}.png", dpi=160)
        plt.close(figure)


def setup(app: Any) -> dict[str, Any]:
    """Register the steps with Sphinx."""
    app.connect("builder-inited", draw_opening)
    app.connect("source-read", show_outputs)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
