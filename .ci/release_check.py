"""Build wheel and sdist, install the wheel into fresh environments, and test it there.

    python .ci/release_check.py [pinned lowest]

There is one environment with the versions in constraints.txt and one with those in lowest.txt. In
each, the tests from the unpacked sdist run with the installed wheel. Only every twelfth test of a
file runs, and different tests are preferred to several cases of one test; `make test` runs all.
"""

import subprocess
import sys
import tarfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "release"
VERSIONS = {"pinned": "constraints.txt", "lowest": "lowest.txt"}
INTERVAL = 12


def run(*command: object, **options: object) -> None:
    """Run a command, and exit with a message if it fails."""
    arguments = [str(argument) for argument in command]
    if code := subprocess.run(arguments, **options).returncode:
        sys.exit(f"This command failed with exit code {code}: {' '.join(arguments)}")


def main(kinds: list[str]) -> None:
    """Build wheel and sdist, and test them with each set of versions."""
    run("rm", "-rf", WORK / "dist", WORK / "sources")
    run(sys.executable, "-m", "build", "--no-isolation", "-o", WORK / "dist", ROOT)
    (wheel,) = (WORK / "dist").glob("*.whl")
    (sdist,) = (WORK / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(WORK / "sources", filter="data")
    (sources,) = (WORK / "sources").iterdir()
    for kind in kinds:
        folder = WORK / kind
        print(f"== testing in a fresh environment with {VERSIONS[kind]}", flush=True)
        venv.create(folder, clear=True, with_pip=True)
        python = folder / "bin" / "python"
        pip = (python, "-m", "pip", "install", "-qq", "--disable-pip-version-check")
        run(*pip, "-c", ROOT / VERSIONS[kind], f"{wheel}[test,dask]")
        code = "import domainwise; print(domainwise.__version__, domainwise.__file__)"
        run(python, "-c", code, cwd=WORK)
        flags = ("-q", "-n", "auto", "--every", INTERVAL, "-p", "no:cacheprovider", "-W", "ignore")
        run(python, "-m", "pytest", *flags, "tests", cwd=sources)
        run(python, "-m", "pytest", *flags, "-m", "dask", "tests/dask", cwd=sources)


if __name__ == "__main__":
    main(sys.argv[1:] or list(VERSIONS))
