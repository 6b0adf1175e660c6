"""Put one deliberate defect at a time into a copy of the sources, and see the tests fail.

``make defects``, or this file with the names of some defects. A test suite is judged by what it
finds: before tests are removed, and after, it must fail on each of these.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src" / "domainwise"


@dataclass(frozen=True)
class Defect:
    """A change of one place in the sources, which is found by its text, wherever the file is."""

    name: str
    old: str  #: occurs once; any white space stands for any other
    new: str
    tests: tuple[str, ...]  #: paths below tests of which one must fail

    def place(self, sources: Path = SOURCES) -> tuple[Path, str]:
        """Return the file that has the text, and its content with the defect."""
        pattern = re.compile(r"\s+".join(map(re.escape, self.old.split())))
        places = [
            (path, match)
            for path in sorted(sources.rglob("*.py"))
            for match in pattern.finditer(path.read_text(encoding="utf-8"))
        ]
        if len(places) != 1:
            files = ", ".join(str(path.relative_to(sources)) for path, _ in places) or "no file"
            raise ValueError(
                f"defect {self.name!r}: its text occurs {len(places)} times, in {files}. Give it "
                f"another text, or another place: {self.old!r}"
            )
        path, match = places[0]
        return path, match.string[: match.start()] + self.new + match.string[match.end() :]


DEFECTS = [
    # Numbers ------------------------------------------------------------------------------------
    Defect(
        "polynomial kernel with the power of another term, right for coef0=1",
        "comb(d, power) * c ** (d - power)",
        "comb(d, power) * c ** power",
        ("algebra/kernels",),
    ),
    Defect(
        "domains compared inside classes without their sizes, right for equal sizes",
        "same_class * (counts / class_sizes)",
        "same_class / same_class.sum(axis=1)",
        ("algebra/labels",),
    ),
    Defect(
        "extra components whose values are not deflated as their coefficients are",
        "values = pairs.KX - gram.combine(KQ, weights)",
        "values = pairs.KX",
        ("estimators/projections/test_exact.py",),
    ),
    Defect(
        "second moments merged with the wrong count, right for equal batches",
        "delta * (self.n_samples * weight)",
        "delta * (other.n_samples * weight)",
        ("estimators/projections/test_partial_fit.py",),
    ),
    Defect(
        "new rows centred with their own means",
        "cast(Z + expansion.intercept, rows.dtype)",
        "cast(Z - Z.mean(0), rows.dtype)",
        ("estimators/projections/test_exact.py",),
    ),
    Defect(
        "invariant kernel with the weight left out of the denominator, right for weight 1",
        "np.sqrt(weight / (1.0 + weight * eigenvalues[is_nonzero]))",
        "np.sqrt(weight / (1.0 + eigenvalues[is_nonzero]))",
        ("estimators/invariant/test_kernel.py",),
    ),
    Defect("HSIC divided by (n - 1)^2", "/ n_a**2", "/ (n_a - 1) ** 2", ("test_metrics.py",)),
    # Rows that are held out ---------------------------------------------------------------------
    Defect(
        "test domains drawn with replacement",
        "rng.choice(n_domains, n_test, replace=False)",
        "rng.choice(n_domains, n_test)",
        ("held_out/splits/test_splitters.py",),
    ),
    Defect(
        "a ridge search trains on the first part that it tests on",
        "for test_cells in test_cells_by_split[:0:-1]:",
        "for test_cells in test_cells_by_split[::-1]:",
        ("estimators/ridge/test_moments.py",),
    ),
    Defect(
        "one-standard-error rule with the deviation of the population",
        "differences.std(axis=1, ddof=1) / np.sqrt(scores.shape[1])",
        "differences.std(axis=1) / np.sqrt(scores.shape[1])",
        ("estimators/projections/test_dcmcv.py",),
    ),
    Defect(
        "parts of a batch follow the order of its rows",
        "order = random_order(keys, division) if part_index == 0 else order",
        "order = np.arange(len(keys))",
        ("estimators/ensemble/test_batches.py",),
    ),
    Defect(
        "context counts in a batch of one row",
        "n_others = np.clip(n_rows, 1.0, self.size) - 1.0",
        "n_others = np.clip(n_rows, 1.0, self.size)",
        ("estimators/ensemble/test_batches.py",),
    ),
    Defect(
        "the ensemble's weights for a held-out domain know its scores",
        "member_weights(np.delete(losses, i, axis=1), prior)",
        "member_weights(losses, prior)",
        ("estimators/ensemble/test_weights.py",),
    ),
    Defect(
        "the order of rows changes an ensemble",
        "order = np.lexsort([keys if weights is None else weights, keys, new_codes])",
        "order = np.argsort(new_codes, kind='stable')",
        ("estimators/ensemble/test_ensemble.py",),
    ),
    Defect(
        "landmarks are drawn by their positions in the table",
        "return np.asarray(order[np.sort(indices)])",
        "return np.sort(indices)",
        ("estimators/test_order.py",),
    ),
    Defect(
        "domains that are held out together follow from their names",
        "order = content_order(X, y, domain_codes)",
        "order = np.arange(n_domains)",
        ("estimators/test_order.py",),
    ),
    Defect(
        "candidates are scored before their scorer is refused",
        "check_task(self.scoring, not is_continuous)",
        "",
        ("estimators/projections/test_dcmcv.py",),
    ),
    Defect(
        "an absurd target is used as it is",
        "return np.where(is_absurd, np.clip(y, center - limit, center + limit), y)",
        "return y",
        ("estimators/ensemble/test_ensemble.py",),
    ),
    Defect(
        "predictions are bounded by the range of all targets, not of the other domains",
        "return np.where(np.arange(len(maxima)) == maxima.argmax(), second, first)",
        "return np.full(len(maxima), first)",
        ("estimators/ensemble/test_weights.py",),
    ),
    Defect(
        "conformal quantile without the place of the new domain",
        "n_domains / (n_domains + 1.0)",
        "1.0",
        ("held_out/calibration/test_conformal.py",),
    ),
    Defect(
        "the restricted likelihood without the weight of the mean",
        "return np.asarray(residuals - weights.sum(axis=-1) + squares / weights.sum(axis=-1))",
        "return np.asarray(residuals - weights.sum(axis=-1))",
        ("held_out/scoring/test_pooling.py",),
    ),
    Defect(
        "few domains without the standard error of their shares",
        "is_enough = means - 0.5 * errors >= coverage - TOLERANCE",
        "is_enough = means >= coverage - TOLERANCE",
        ("held_out/calibration/test_conformal.py",),
    ),
    # Tables, files, pages, commands -------------------------------------------------------------
    Defect(
        "codes such as 007 read as numbers",
        r'r"0|-?[1-9][0-9]*"',
        r'r"-?[0-9]+"',
        ("tables",),
    ),
    Defect(
        "the decimal mark of the model is not used for new tables",
        "return self.marks.get(name, self.decimal)",
        "return \".\"",
        ("tables/test_one_conversion.py",),
    ),
    Defect(
        "the number 1 is not the category 01",
        "text = matches[0] if matches else text_of(cell)",
        "text = text_of(cell)",
        ("tables/test_one_conversion.py",),
    ),
    Defect(
        "options for reading cells are not passed on to workers and chunks",
        "model.with_options(decimal, na)",
        "model",
        ("tables/test_one_conversion.py",),
    ),
    Defect(
        "percentages without a sign are read as numbers",
        "return number_in(text[:-1].rstrip(), mark) / 100 if text.endswith(\"%\") else np.nan",
        "return number_in(text.rstrip(\"% \"), mark) / 100",
        ("tables/test_one_conversion.py",),
    ),
    Defect(
        "the digest of a model file is not checked",
        'if header["sha256"] != digest(members, header["info"]):',
        "if False:",
        ("models/files/test_persistence.py",),
    ),
    Defect(
        "distance to sources without the noise of their means",
        "variances * (1 / n + 1 / sizes)",
        "variances * (1 / n)",
        ("tables/shift/test_shift.py",),
    ),
    Defect(
        "the generalization gap with the wrong sign",
        "return self.seen_mean - self.mean",
        "return self.mean - self.seen_mean",
        ("evaluation/test_uncertainty.py",),
    ),
    Defect(
        "merge adds sums of different landmarks",
        "if own_value != other_facts.get(name, \"missing\")",
        "if False",
        ("estimators/projections/test_merge.py",),
    ),
    Defect(
        "unusable input ends with exit code 1",
        "getattr(error, \"parts\", [error]))), 2)",
        "getattr(error, \"parts\", [error]))), 1)",
        ("cli/test_evaluate.py",),
    ),
    # Shared rules, and their use ----------------------------------------------------------------
    Defect(
        "True counts as the number 1",
        "not isinstance(val, bool | np.bool_) and bool(super().is_satisfied_by(val))",
        "bool(super().is_satisfied_by(val))",
        ("base",),
    ),
    Defect(
        "missing labels of pandas become a class",
        'if value is None or type(value).__name__ in ("NAType", "NaTType"):',
        "if value is None:",
        ("base",),
    ),
    Defect(
        "one class does not check one of its arguments",
        'calibration: str = "cv" _parameter_constraints: ClassVar[dict[str, Any]] = {',
        'calibration: str = "cv"; _parameter_constraints = {"calibration": "no_validation",',
        ("test_common.py",),
    ),
    Defect(
        "one class turns classes that are not checked into codes",
        "check_classes(y, n_rows) self.classes_ = target.names return",
        "check_target(y, n_rows, 'delta'); self.classes_ = target.names; return",
        ("test_common.py",),
    ),
    # What a caller passes, and what a user's code does ------------------------------------------
    Defect(
        "a user's estimator can write to the caller's rows",
        "model = estimator.fit(read_only(X), read_only(y), **fit_params)",
        "model = estimator.fit(X, y, **fit_params)",
        ("hostile/test_callers.py",),
    ),
    Defect(
        "the watch returns the columns in the caller's order",
        "return frame.copy(deep=False) if names is None else frame[list(names)]",
        "return frame",
        ("tables/shift/test_shift.py",),
    ),
    Defect(
        "masked, complex and dated weights are read as numbers",
        'casting: Any = "unsafe" if array.dtype.kind == "O" else "same_kind"',
        'casting: Any = "unsafe"',
        ("hostile/test_callers.py",),
    ),
    Defect(
        "complex numbers become categories",
        "NESTED = (list, dict, tuple, set, bytes, complex, np.ndarray)",
        "NESTED = (list, dict, tuple, set, bytes, np.ndarray)",
        ("tables/test_one_conversion.py",),
    ),
    Defect(
        "the interval for a negative mean of R² ends at 0",
        "bounds = (0.0, 1.0) if _is_error(scoring) else (1.0,)",
        "bounds = (0.0, 1.0)",
        ("estimators/ensemble/test_weights.py",),
    ),
    Defect(
        "classes beyond int64 are exported as negative numbers",
        'refuse(last_step, "with classes that are too large for int64", is_too_large)',
        "",
        ("models/export/test_to_onnx.py",),
    ),
    Defect(
        "importances of a loaded forest are lost",
        "return (total - total[left] - total[right])[is_split]",
        "return np.full(is_split.sum(), np.nan)",
        ("estimators/ensemble/test_forests.py",),
    ),
    Defect(
        "the order of rows changes what Evaluation.fit returns",
        "rows = source.by_content(np.arange(len(source.y)))",
        "rows = np.arange(len(source.y))",
        ("evaluation/test_order.py",),
    ),
    Defect(
        "an IndexError of a user's method ends the evaluation",
        "except (Exception, SystemExit) as error:",
        "except ValueError as error:",
        ("evaluation/test_own.py",),
    ),
    Defect(
        "a name that is not UTF-8 fails after the fits",
        'if "?" in str(path).replace("?", "").encode("utf-8", "replace").decode():',
        "if False:",
        ("hostile/test_names.py",),
    ),
    Defect(
        "the first of overlapping blocks restores BLAS threads",
        "next_block = blocks[blocks.index(block) + 1]",
        "next_block = None",
        ("base/test_process.py",),
    ),
    Defect(
        "a sheet may span any number of cells",
        "is_dense = height * width <= max(MAX_AREA, MAX_AREA_PER_CELL * n_cells)",
        "is_dense = True",
        ("tables/test_tables.py", "tables/test_cells.py"),
    ),
    Defect(
        "a hidden sheet is read if it is the first",
        "sorted({**errors_by_sheet}, key=lambda name: name not in visible)",
        "[*errors_by_sheet]",
        ("tables/test_one_conversion.py",),
    ),
    Defect(
        "names of 246 letters cannot be written",
        "end = os.fsencode(path.name)[-240:].decode(errors=\"ignore\")",
        "end = path.name",
        ("base/test_files.py",),
    ),
]  # fmt: skip


def first_failure(tests: list[str], sources: Path, workers: str) -> str | None:
    """Run tests on the sources in a folder until one fails; return its name, or None."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", workers, "--dist=worksteal"]
    command += ["-p", "no:cacheprovider", "-W", "ignore", *tests]
    environment = os.environ | {"PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    named = re.findall(r"^(?:FAILED|ERROR) (\S+::.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if done.returncode and not named:
        sys.exit(f"pytest ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr}")
    return named[0] if named else None


def seen(defect: Defect, workers: str) -> str | None:
    """Return the test that fails with the defect, and passes without it."""
    path, content = defect.place()
    relative = path.relative_to(SOURCES)
    with tempfile.TemporaryDirectory() as folder:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(SOURCES, Path(folder) / "domainwise", ignore=ignored)
        Path(folder, "domainwise", relative).write_text(content, encoding="utf-8")
        test = first_failure([f"tests/{name}" for name in defect.tests], Path(folder), workers)
    if test is not None and first_failure([test], SOURCES.parent, "0") is not None:
        sys.exit(f"{test} fails without the defect, too: correct that first")
    return test


def main() -> None:
    """Try the defects that are named, or all, and say which test saw each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="try the defects whose names hold one of these")
    parser.add_argument("-n", "--workers", default="auto", help="processes of pytest-xdist")
    asked = parser.parse_args()
    chosen = [d for d in DEFECTS if not asked.words or any(w in d.name for w in asked.words)]
    missed = 0
    for defect in chosen:
        started = time.perf_counter()
        test = seen(defect, asked.workers)
        missed += test is None
        package = defect.place()[0].relative_to(SOURCES).parts[0]
        seconds = f"{time.perf_counter() - started:.0f} s"
        print(f"{'seen  ' if test else 'MISSED'} {package}: {defect.name} ({seconds})")
        print(f"       {test or 'no test fails'}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} defects were seen")
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
