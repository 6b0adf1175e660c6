"""The Python in the guide runs, page by page, as it stands there."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide"
BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
PAGES = {path.stem: BLOCK.findall(path.read_text(encoding="utf-8")) for path in GUIDE.glob("*.md")}


@pytest.mark.parametrize("page", sorted(name for name, blocks in PAGES.items() if blocks))
def test_the_code_of_a_page_runs(page, capsys):
    namespace = {}
    for block in PAGES[page]:
        exec(compile(block, f"docs/guide/{page}.md", "exec"), namespace)
    assert capsys.readouterr().out.strip()  # each page prints what it found


def test_most_pages_show_code():
    assert sum(bool(blocks) for blocks in PAGES.values()) >= 5
