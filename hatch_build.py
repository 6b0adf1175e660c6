"""Build hook for the package description: README.md without relative links and images.

A package index shows README outside the repository, where relative links do not work. Links are
replaced by their text, and images are removed.
"""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

IMAGE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n+", flags=re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")


class DescriptionHook(MetadataHookInterface):
    """Set ``readme`` in the project metadata."""

    def update(self, metadata: dict) -> None:
        """Read README.md, and remove relative links and images."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = LINK.sub(r"\1", IMAGE.sub("", text))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
