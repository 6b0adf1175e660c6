"""Change evaluation folders at random and use them: ``make fuzz``, or this file with --count.

A folder is read, or refused by a ValueError with words; every other error is a failure, and so is
an import of what a folder names. Every change is made of its number alone.
"""

import argparse
import contextlib
import json
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas

from domainwise import evaluate
from domainwise.cli.fit import Recipe
from domainwise.evaluation.folder import _content_digest, _digest, read_evaluation

sys.path.insert(0, str(Path(__file__).parent))
from watched import watch

#: Values that something might take for a length, an index, a name or a truth value.
STRANGE = [-1, 0, 1, 2, 7, 10**9, 10**30, 0.5, -1e308, 1e308, True, None, "", "abort", "\x1b[2J"]
STRANGE += ["../../etc/passwd", "<script>", "[/x]", "x" * 2000, [], [1], {}, {"a": 1}, [[[]]]]
#: Python names that a folder could ask for; importing the first would be noticed.
PLANTED = ["planted:run", "os:abort", "planted", "builtins:exit", "/tmp/model.skops"]
TABLE = {"path": "table.csv", "sha256": "0" * 64, "asked": {
    **dict.fromkeys(("features", "drop", "drop_domains", "dates", "decimal", "encoding")),
    "target": "y", "domain": "site", "task": "auto", "na": [], "auto_drop": False,
}}  # fmt: skip


def seeds(root):
    """Folders of small evaluations, of classes and of numbers."""
    rng = np.random.default_rng(0)
    site = np.repeat(["a", "b", "c"], 20)
    frame = pandas.DataFrame(rng.normal(size=(60, 2)), columns=["x", "z"])
    frame["kind"] = rng.choice(["low", "high"], 60)
    score = frame["x"] + rng.normal(size=60)
    targets = {"classes": np.where(score > 0, "yes", "no"), "numbers": score}
    for name, y in targets.items():
        out = root / name
        methods = ["constant", "linear", "kpca"]
        evaluate(frame, y, site, methods=methods, progress=False, out=out)
        stored = json.loads((out / "evaluation.json").read_text("utf-8"))
        stored |= {"table": TABLE, "estimators": PLANTED, "title": "a title"}
        write_result(out, stored)
        yield out


def write_result(folder, stored):
    stored["digest"] = _content_digest(stored)
    (folder / "evaluation.json").write_text(json.dumps(stored), "utf-8")


def changed_json(value, rng):
    """The same with one entry changed, removed or doubled."""
    holder, key = {"": value}, ""
    while isinstance(holder[key], (dict, list)) and holder[key] and rng.random() < 0.85:
        holder = holder[key]
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        key = keys[int(rng.integers(len(keys)))]
    if key == "":
        return STRANGE[rng.integers(len(STRANGE))]
    kind = rng.integers(5)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, list):
        holder.append(holder[key])
    elif kind == 2 and isinstance(holder, dict):
        holder[str(STRANGE[rng.integers(len(STRANGE))])] = holder[key]
    else:
        strange = [*STRANGE, *PLANTED]
        holder[key] = strange[rng.integers(len(strange))]
    return value


def changed_bytes(content, rng):
    """The same with bytes changed, cut off, or doubled."""
    places = rng.integers(0, len(content), size=2)
    kind = rng.integers(3)
    if kind == 0:
        return content[: places[0]]
    if kind == 1:
        return content[: places.max()] + content[places.min() :]
    changed = bytearray(content)
    changed[places[0]] = rng.integers(256)
    return bytes(changed)


def changed_predictions(path, rng):
    """Predictions with another value, type, name or number of rows."""
    frame = pandas.read_parquet(path)
    name = frame.columns[rng.integers(frame.shape[1])]
    kind = rng.integers(5)
    if kind == 0:
        frame = frame.drop(columns=name)
    elif kind == 1:
        frame[name] = [STRANGE[rng.integers(15)]] * len(frame)
        frame[name] = frame[name].astype(str) if rng.random() < 0.5 else frame[name]
    elif kind == 2:
        frame = frame[: rng.integers(len(frame))]
    elif kind == 3:
        frame = frame.rename(columns={name: "probability_x"})
    else:
        frame = pandas.concat([frame, frame])
    with contextlib.suppress(Exception):  # what cannot be written stays unchanged
        frame.to_parquet(path, index=False)


def change(folder, rng):
    """Change one thing in a folder; half of the changes are made with matching digests."""
    result, lines = folder / "evaluation.json", folder / "jobs" / "results.jsonl"
    files = sorted((folder / "jobs").glob("*.parquet"))
    path = files[rng.integers(len(files))]
    kind, careful = rng.integers(8), rng.random() < 0.7
    if kind <= 2:
        stored = changed_json(json.loads(result.read_text("utf-8")), rng)
        if careful and isinstance(stored, dict):
            write_result(folder, stored)
        else:
            result.write_text(json.dumps(stored), "utf-8")
    elif kind == 3:
        rows = [json.loads(line) for line in lines.read_text("utf-8").splitlines()]
        place = rng.integers(len(rows))
        rows[place] = changed_json(rows[place], rng)
        lines.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    elif kind == 4:
        which = [result, lines, path][rng.integers(3)]
        which.write_bytes(changed_bytes(which.read_bytes(), rng))
    elif kind == 5:
        other = files[rng.integers(len(files))]
        content = path.read_bytes()
        path.write_bytes(other.read_bytes())
        other.write_bytes(content)
    elif kind == 6:
        [result, lines, path][rng.integers(3)].unlink()
    else:
        changed_predictions(path, rng)
        if careful:
            rows = [json.loads(line) for line in lines.read_text("utf-8").splitlines()]
            for row in rows:
                if row.get("file") == path.name:
                    row["sha256"] = _digest(path.read_bytes())
            lines.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def use(folder, number):
    """Do what the commands report and fit --from do."""
    evaluation, _ = read_evaluation(folder)
    evaluation.verdict(), evaluation.to_dict(), str(evaluation)
    recipe = Recipe(folder)
    for key in (recipe.find_key(None), "linear"):
        recipe.check(key)
        recipe.method(key, None, force=True)
    if number % 20 == 0:
        evaluation.report(folder / "report.html")


def main(count, first=0):
    """Run so many changes; return what became of them and what must not happen."""
    with tempfile.TemporaryDirectory() as root, contextlib.chdir(root):
        (Path(root) / "planted.py").write_text("open('ran', 'w').close()\n")
        sys.path.insert(0, root)
        folders = list(seeds(Path(root)))

        def case(number):
            rng = np.random.default_rng(number)
            seed = folders[number % len(folders)]
            with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                folder = Path(place) / "changed"
                shutil.copytree(seed, folder)
                change(folder, rng)
                try:
                    use(folder, number)
                    word = "used"
                except ValueError as error:
                    word = "refused" if str(error) else f"case {number}: no words"
            if "planted" in sys.modules or Path("ran").exists():
                word = f"case {number} runs what the folder names"
            return 10**7, word

        return watch(count, case, first=first)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    start = time.monotonic()
    outcomes, failures = main(arguments.count, arguments.first)
    seconds = time.monotonic() - start
    print(f"{arguments.count} changed folders in {seconds:.0f} s: {dict(outcomes)}")
    print("\n".join(failures))
    raise SystemExit(bool(failures))
