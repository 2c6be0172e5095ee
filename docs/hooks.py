"""Adds the chart's page, which is outside this folder, to the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

__all__ = ["on_files", "on_page_markdown"]

_CHART: Final = "../helm/portolan/README.md"
_CHART_PAGE: Final = "chart.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page of the chart."""
    source = Path(config.docs_dir) / _CHART
    files.append(File.generated(config, _CHART_PAGE, abs_src_path=str(source.resolve())))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point links to the file of the chart to its page."""
    return markdown.replace(f"]({_CHART})", f"]({_CHART_PAGE})")
