"""The life of a model: four hospitals, one of which is new.

``python examples/hospitals.py FOLDER`` is what ``make demo`` runs. Three hospitals are evaluated, a
model is fitted, and the fourth hospital is predicted, used to adapt the model with ten labels, and
compared with what the evaluation promised. At the end, all four hospitals are evaluated.

``python examples/hospitals.py FOLDER --record`` also writes the numbers to ``docs/hospitals.json``
and the picture of the report to ``docs/evaluate.png`` (with Chromium), and puts the new numbers
into the pages that show them. ``tests/test_hospitals.py`` compares all of these.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import io
import json
import os
import re
import resource
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pandas
from sklearn.metrics import balanced_accuracy_score

from domainwise.datasets import load_heart

ROOT = Path(__file__).resolve().parents[1]
NUMBERS = ROOT / "docs" / "hospitals.json"
PICTURE = ROOT / "docs" / "evaluate.png"
#: The pages, and the texts in ``docs/hospitals.json`` that each of them contains.
PAGES = {
    "README.md": ("expect", "seconds", "life"),
    "docs/index.md": ("range", "sites"),
    "docs/guide/hospitals.md": ("range", "sites", "reason", "life"),
    "docs/guide/sites.md": ("range",),
    "src/domainwise/evaluation/run.py": ("expect",),
}
#: The hospital that is new in the demo, and methods that are quick to evaluate.
NEW, METHODS = "switzerland", "constant,linear,invariantridge"
N_LABELS = 10


def run(command: str, folder: Path, show: str = r".", messages: bool = False) -> None:
    """Run a command, and print it and what matches ``show`` in its output, in 80 columns.

    Indented lines belong to the line before them.
    """
    print(" \\\n    ".join(textwrap.wrap(f"$ {command}", 76)), flush=True)
    result = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)],
        cwd=folder,
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        raise SystemExit(result.stdout + result.stderr)
    shown = False
    for line in (result.stderr * messages + result.stdout).splitlines():
        shown = bool(re.search(show, line)) or (shown and line.startswith("  "))
        if shown and line.strip():
            print(
                textwrap.fill(line, 80, subsequent_indent="  ") if len(line) > 80 else line.rstrip()
            )


def read(folder: Path) -> dict[str, Any]:
    """Return the results of ``evaluate`` in a folder."""
    contents: dict[str, Any] = json.loads((folder / "evaluation.json").read_text("utf-8"))
    return contents


def recommended(results: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of the recommended method."""
    entry: dict[str, Any] = next(
        m for m in results["methods"] if m["key"] == results["recommended"]
    )
    return entry


def life_of_a_model(folder: Path) -> dict[str, Any]:
    """Evaluate three hospitals, fit, predict the fourth, adapt, and score the predictions."""
    frame = load_heart(as_frame=True).frame
    frame.to_csv(folder / "hospitals.csv", index=False)
    frame[frame["domain"] != NEW].to_csv(folder / "three.csv", index=False)
    new = frame[frame["domain"] == NEW].drop(columns="domain").sample(frac=1.0, random_state=0)
    new.drop(columns="label").to_csv(folder / "fourth.csv", index=False)
    new[:N_LABELS].to_csv(folder / "ten.csv", index=False)
    columns = "--target label --domain domain"
    run(f"domainwise evaluate three.csv {columns} --methods {METHODS} --out three", folder, "^[^N]")
    run("domainwise fit --from three -o model.skops", folder, "^wrote")
    run("domainwise predict model.skops fourth.csv -o predictions.csv", folder, "^shift", True)
    run("domainwise adapt model.skops ten.csv -o adapted.skops", folder, "^(site|correction)")
    run("domainwise predict adapted.skops fourth.csv -o adapted.csv", folder, "^shift")
    # The labelled rows are not scored.
    labels, scores, means = new["label"][N_LABELS:], [], []
    for name in ("predictions.csv", "adapted.csv"):
        predictions = pandas.read_csv(folder / name)[N_LABELS:]
        scores.append(balanced_accuracy_score(labels, predictions["prediction"]))
        means.append(predictions["probability_1"].mean())
    results = read(folder / "three")
    method = recommended(results)
    known = sorted(entry["score"] for entry in method["per_domain"])
    return {
        "new": NEW,
        "method": method["label"],
        "held_out": known,
        "mean": method["mean"],
        "score": scores[0],
        "adapted": scores[1],
        "ill": labels.mean(),
        "scored": len(labels),
        "healthy": int((labels == 0).sum()),
        "predicted": means[0],
        "predicted_adapted": means[1],
    }


def four_hospitals(folder: Path) -> dict[str, Any]:
    """Evaluate all four hospitals with the default methods, and fit the recommended one."""
    columns = "--target label --domain domain"
    out = "domainwise-evaluation/hospitals"
    run(f"domainwise evaluate hospitals.csv {columns} --out {out}", folder, "^Expect")
    results = read(folder / out)
    method = recommended(results)
    return {
        "key": method["key"],
        "method": method["label"],
        "metric": results["measure"]["label"],
        "mean": method["mean"],
        "range": method["range"],
        "seen": method["seen"],
        "sites": {entry["domain"]: entry["score"] for entry in method["per_domain"]},
        "errors": {entry["domain"]: entry["error"] for entry in method["per_domain"]},
        "answer": {key: results["answer"][key] for key in ("expect", "reason")},
        "rows": results["facts"]["rows"],
    }


def write_texts(numbers: dict[str, Any]) -> dict[str, str]:
    """Return the texts that pages contain."""
    four, life = numbers["four"], numbers["life"]
    scores = sorted((score, name) for name, score in four["sites"].items())
    names = [f"{score:.2f} at {name}" for score, name in scores]
    lowest, highest = life["held_out"][0], life["held_out"][-1]
    expect = four["answer"]["expect"].split(". ")[0]
    return {
        "expect": expect,
        "range": expect.replace(" at the next site", ""),
        # Further clauses contain times, which differ between runs.
        "reason": f"{four['method']}: {four['answer']['reason'].split(';')[0]}",
        "sites": f"{', '.join(names[:-1])} and {names[-1]}",
        "seconds": f"about {numbers['cpu_seconds']:.0f} seconds on one core",
        "life": (
            f"the three held-out hospitals score {lowest:.2f} to {highest:.2f}, and "
            f"{life['method']} scores {life['score']:.2f} at {life['new']}{with_labels(life)} "
            f"({few_healthy(life)})"
        ),
    }


def with_labels(life: dict[str, Any]) -> str:
    """Return the end of a sentence: the score after the model was adapted with labels."""
    before, after = f"{life['score']:.2f}", f"{life['adapted']:.2f}"
    labels = f"{N_LABELS} labels from there"
    return f", with and without {labels}" if after == before else f", and {after} with {labels}"


def few_healthy(life: dict[str, Any]) -> str:
    """Say why the scores at the new hospital are uncertain: a class has few rows."""
    return (
        f"only {life['healthy']} of the {life['scored']} patients scored there are healthy, so "
        "these scores are uncertain"
    )


def after_adapt(life: dict[str, Any]) -> str:
    """Return the end of a sentence: the mean probability after adapt, or why it is the same."""
    if life["predicted_adapted"] == life["predicted"]:
        return ", also after adapt: labels did not improve the model at the other hospitals"
    return f", and {100 * life['predicted_adapted']:.0f} % after adapt"


def replace_texts(old: dict[str, str], new: dict[str, str]) -> None:
    """Replace the old texts in the pages; they may be wrapped at other places."""
    for name, keys in PAGES.items():
        page = ROOT / name
        text = page.read_text("utf-8")
        for key in keys:
            if key not in old:
                print(f"insert the text {key!r} into {name}: {new[key]}")
                continue
            pattern = r"\s+(?:# )?".join(map(re.escape, old[key].split()))
            # A text that is the same stays wrapped as it is.
            text, count = re.subn(
                pattern, lambda m, key=key: m[0] if old[key] == new[key] else new[key], text
            )
            if not count:
                print(f"{name} does not contain the text {key!r}: {old[key]}")
        page.write_text(text, encoding="utf-8")


def take_picture(page: Path) -> None:
    """Take a picture of the first screen of the report."""
    from PIL import Image

    path = ROOT / "tests" / "browser" / "driver.py"
    spec = importlib.util.spec_from_file_location("browser_driver", path)
    assert spec is not None
    assert spec.loader is not None
    driver = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(driver)
    if (browser := driver.find_browser()) is None:
        print(f"no browser was found; {PICTURE.name} is unchanged")
        return
    with driver.Browser(browser) as view:
        view.open(page, width=1120)
        height = view.run("document.querySelector('header + *').getBoundingClientRect().bottom")
        view.ask("Emulation.setDeviceMetricsOverride", width=1120, height=int(height) + 24,
                 deviceScaleFactor=1.5, mobile=False)  # fmt: skip
        data = view.ask("Page.captureScreenshot")["data"]
    with Image.open(io.BytesIO(base64.b64decode(data))) as image:
        image.convert("RGB").quantize(128, method=Image.Quantize.MAXCOVERAGE).save(
            PICTURE, optimize=True
        )


def show_paper() -> None:
    """Print a small case of the paper's first table: ten draws instead of twenty."""
    import numpy as np
    from sklearn.svm import SVC

    from domainwise import COIR, DCM
    from domainwise.datasets import make_synthetic

    print("\nThe paper's first case, 10 of 20 draws: accuracy on three unseen domains")
    projections: dict[str, Any] = {"SVM": None, "COIR": COIR(gamma=0.1), "DCM": DCM(gamma=0.1)}
    paper = {"SVM": 69.96, "COIR": 69.89, "DCM": 70.31}  # reproduction/printed.toml
    for name, projection in projections.items():
        scores = []
        for seed in range(10):
            data = make_synthetic(eta=0.1, random_state=seed)
            is_source, X = data.sample_domain < 7, data.data
            y, svm = data.target, SVC(gamma=0.1)
            if projection is not None:
                domains = data.sample_domain[is_source]
                projection.fit(X[is_source], y[is_source], sample_domain=domains)
                X = projection.transform(X)
            svm.fit(X[is_source], y[is_source])
            scores.append(100 * svm.score(X[~is_source], y[~is_source]))
        error = np.std(scores, ddof=1) / np.sqrt(len(scores))
        print(f"  {name:5} {np.mean(scores):.1f} ± {error:.1f} %   paper: {paper[name]:.1f} %")
    print("DCM is the paper's method, COIR an older one; ± is a standard error.")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True)
    life = life_of_a_model(options.folder)
    four_start = resource.getrusage(resource.RUSAGE_CHILDREN)
    lowest, highest = life["held_out"][0], life["held_out"][-1]
    summary = (
        f"Promised for {life['new']}: balanced accuracy {life['mean']:.2f} ({lowest:.2f} to "
        f"{highest:.2f} at the other three hospitals). Scored there: {life['score']:.2f}"
        f"{with_labels(life)} ({few_healthy(life)}). "
        f"{100 * life['ill']:.0f} % of its patients are ill; the mean "
        f"probability is {100 * life['predicted']:.0f} %{after_adapt(life)}. "
        "Now all four hospitals:"
    )
    print("\n".join(["", *textwrap.wrap(summary, 78)]))
    four = four_hospitals(options.folder)
    page = options.folder / "domainwise-evaluation" / "hospitals" / "report.html"
    if not options.record:
        show_paper()
        print(f"\nReport: {page}")
        print("Your own table: domainwise evaluate TABLE.csv --target COLUMN --domain COLUMN")
        return
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = end.ru_utime + end.ru_stime - four_start.ru_utime - four_start.ru_stime
    numbers: dict[str, Any] = {"four": four, "life": life, "cpu_seconds": seconds}
    new = write_texts(numbers)
    if NUMBERS.exists():
        replace_texts(json.loads(NUMBERS.read_text("utf-8"))["texts"], new)
    text = json.dumps({**numbers, "texts": new}, indent=1, ensure_ascii=False)
    NUMBERS.write_text(f"{text}\n", encoding="utf-8")
    take_picture(page)


if __name__ == "__main__":
    main()
