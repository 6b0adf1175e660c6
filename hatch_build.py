"""The description of the package: README, without links to files that only a clone has.

An index such as PyPI shows README away from the repository, where relative links and pictures lead
nowhere. There the words of a link stay, and a picture is left out.
"""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n+", flags=re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")


class DescriptionHook(MetadataHookInterface):
    """Fills in ``readme``."""

    def update(self, metadata: dict) -> None:
        """Read README and drop what needs a clone."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = LINK.sub(r"\1", PICTURE.sub("", text))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
