"""The site: broken links end its build; its pictures are legible and shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PICTURES = sorted(DOCS.rglob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"


def build(folder: Path, **pages: str) -> tuple[int, str]:
    """Build a site of a few pages with our settings; only the first one is in the menu."""
    docs = folder / "docs"
    docs.mkdir()
    for name, text in pages.items():
        (docs / f"{name}.md").write_text(text)
    config = folder / "mkdocs.yml"
    settings = f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\nhooks: []\n"
    config.write_text(f"{settings}nav: [{next(iter(pages))}.md]\n")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config)]
    process = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )
    return process.returncode, process.stderr


def test_a_site_without_fault_is_built(tmp_path: Path) -> None:
    # The anchor has the form that forges use.
    status, log = build(tmp_path, index="# A\n\n[b](#b--c)\n\n## B · c\n")
    assert status == 0, log
    page = (tmp_path / "site" / "index.html").read_text()
    assert "<script" in page
    # A reader without a network, or with a secret, loads nothing from elsewhere.
    assert re.findall(r"""<(?:script|link|img)[^>]*["']https?:""", page) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[x](missing.md)", "missing.md"),
        ("[x](#missing)", "#missing"),
        ("[x](/missing)", "/missing"),
        ("![x](missing.svg)", "missing.svg"),
    ],
)
def test_a_broken_link_ends_the_build(tmp_path: Path, text: str, fault: str) -> None:
    status, log = build(tmp_path, index=f"# A\n\n{text}\n")
    assert status != 0
    assert fault in log


def test_a_page_that_is_not_in_the_menu_ends_the_build(tmp_path: Path) -> None:
    status, log = build(tmp_path, index="# A\n", lonely="# B\n")
    assert status != 0
    assert "lonely.md" in log


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_every_picture_is_legible_and_is_shown(picture: Path) -> None:
    root = ET.parse(picture).getroot()
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    for name in ("title", "desc"):
        element = root.find(f"{SVG}{name}")
        assert element is not None
        assert element.text
        assert (element.get("id") or "-") in (root.get("aria-labelledby") or "")
    assert "prefers-color-scheme: dark" in (root.findtext(f"{SVG}style") or "")
    pages = "".join(page.read_text() for page in DOCS.glob("*.md"))
    assert f"]({picture.relative_to(DOCS)})" in pages


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_every_picture_keeps_its_lines_within_its_frame(picture: Path) -> None:
    root = ET.parse(picture).getroot()
    _, _, width, height = map(float, (root.get("viewBox") or "").split())
    for text in root.iter(f"{SVG}text"):
        x, y = float(text.get("x", 0)), float(text.get("y", 0))
        assert 0 < x < width, text.text
        assert 0 < y < height, text.text
