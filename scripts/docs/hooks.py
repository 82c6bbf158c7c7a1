"""What `mkdocs build` does besides: the search index becomes a script, which a page opened from a folder may load."""

from pathlib import Path
from typing import Any


def on_post_build(config: Any) -> None:
    folder = Path(config["site_dir"])
    index = (folder / "search" / "search_index.json").read_text(encoding="utf-8")
    (folder / "search_index.js").write_text(f"const searchIndex = {index};\n", encoding="utf-8")
