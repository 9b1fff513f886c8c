"""The site's cookbook has a page for each kind of finding; here it is one page."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

COOKBOOK = "cookbook.md"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the kinds' pages to the navigation."""
    pages = [COOKBOOK, *(f"cookbook/{kind}.md" for kind in _kinds(config))]
    config.nav = [{"Cookbook": pages} if one == {"Cookbook": COOKBOOK} else one for one in config.nav]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Make the kinds' pages; the cookbook's own one lists them."""
    cookbook = files.get_file_from_path(COOKBOOK)
    text = cookbook.content_string
    for kind, (title, body) in _kinds(config).items():
        text = text.replace(f"### {title}\n{body}", f"- [{title}](cookbook/{kind}.md)\n")
        files.append(File.generated(config, f"cookbook/{kind}.md", content=f"# {title}\n{_from_below(body)}"))
    cookbook.content_string = text
    return files


def _kinds(config: MkDocsConfig) -> dict[str, tuple[str, str]]:
    """Title and text of every kind's section, by its id."""
    text = (Path(config.docs_dir) / COOKBOOK).read_text(encoding="utf-8")
    sections = re.findall(r"^### (.+)\n(\nFinding id: `(\w+)`\n(?:(?!##).*\n)*)", text, flags=re.MULTILINE)
    return {kind: (title, body) for title, body, kind in sections}


def _from_below(text: str) -> str:
    """Its links, as seen from the folder of the kinds' pages."""
    return re.sub(r"\]\((?!https?:|#)(cookbook/)?", lambda link: "](" if link[1] else "](../", text)
