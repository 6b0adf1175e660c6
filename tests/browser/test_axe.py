"""No violation of the accessibility rules of axe-core on any page, in both themes and widths.

``make test-browser`` fetches axe-core with npm; without it, these tests are skipped.
"""

import json
import os
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "docs" / "_build" / "html"
AXE = ROOT / "build" / "node_modules" / "axe-core" / "axe.min.js"
RUN = """
window.found = null;
axe.run(document, {resultTypes: ["violations"]}).then(result => {
  window.found = JSON.stringify(result.violations.map(violation => [violation.id,
    violation.nodes.length, violation.nodes[0].target.join(" "),
    violation.nodes[0].html.slice(0, 200)]));
}, error => { window.found = JSON.stringify([["error", 1, String(error), ""]]); });
0
"""


@pytest.fixture(scope="module")
def axe():
    if not AXE.is_file():
        if os.environ.get("CI") == "true":
            pytest.fail(f"{AXE} is missing: make test-browser fetches it")
        pytest.skip("axe-core is missing: make test-browser fetches it")
    return AXE.read_text(encoding="utf-8")


def violations(view, axe, page, dark):
    """What axe-core finds on a page, dark on a phone: rules, numbers of elements, the first one."""
    view.open(page, width=390 if dark else 1280, dark=dark)
    view.run(f"localStorage.setItem('mode', '{'dark' if dark else 'light'}'); 0")
    view.run(f"document.documentElement.dataset.theme = '{'dark' if dark else 'light'}'; 0")
    view.run(axe + "; 0")
    view.run(RUN)
    end = time.monotonic() + 120
    while (found := view.run("window.found")) is None:
        assert time.monotonic() < end, f"axe-core did not finish on {page}"
        time.sleep(0.05)
    return json.loads(found)


def pages():
    """All pages of the site but those of the API, and every sixth of these."""
    every = [page for page in sorted(SITE.rglob("*.html")) if "_static" not in page.parts]
    reference = [page for page in every if "reference" in page.parts or "_modules" in page.parts]
    return [page for page in every if page not in reference] + reference[::6]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_site_has_no_violation(view, axe, dark):
    if not (SITE / "index.html").is_file():
        pytest.skip("there is no site in docs/_build/html: run make docs")
    wrong = []
    for page in pages():
        for rule, number, target, html in violations(view, axe, page, dark):
            wrong.append(f"{page.relative_to(SITE)}: {rule}, {number} times: {target} {html}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_report_has_no_violation(view, axe, tmp_path, dark):
    pytest.importorskip("pandas")
    from domainwise import evaluate
    from domainwise.datasets import load_heart

    heart = load_heart(as_frame=True).frame
    methods = ["constant", "linear", "boosting"]
    evaluation = evaluate(heart, "label", "domain", methods=methods, progress=False)
    assert violations(view, axe, evaluation.report(tmp_path / "report.html"), dark) == []


def test_a_violation_is_detected(view, axe, tmp_path):
    """Otherwise the tests above could pass for the wrong reason."""
    page = tmp_path / "bad.html"
    page.write_text('<html lang="en"><title>t</title><main><h1>t</h1><img src="a.png"></main>')
    assert "image-alt" in {rule for rule, *_ in violations(view, axe, page, False)}
