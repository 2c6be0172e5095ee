"""Citations of documents: broken ones are found, and the tree has none."""

from __future__ import annotations

import subprocess
from pathlib import Path

from audit.references import broken_references

HERE, GONE, FOREIGN = "docs/" + "here.md", "docs/" + "gone.md", "DESIGN" + ".md"


def test_every_citation_leads_somewhere() -> None:
    assert broken_references() == []


def test_broken_citations_are_found(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / HERE).write_text("# Title\n\n## One\n\n**Two** is bold.\n")
    lines = [
        f'"""See {HERE}, "One", {HERE}, "Two" and {HERE}.',
        f'See {HERE}, "Three".',
        f"See {GONE}.",
        f"# a rule of {FOREIGN}",
        '"""',
    ]
    (tmp_path / "module.py").write_text("\n".join(lines))
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    assert broken_references(tmp_path) == [
        f"module.py:2: {HERE} has no heading 'Three'",
        f"module.py:3: {GONE} is not there",
        f"module.py:4: {FOREIGN} is no document of ours",
    ]
