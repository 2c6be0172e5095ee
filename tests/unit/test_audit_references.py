"""Citations of documents: those that are broken are found, and there are none."""

from __future__ import annotations

import subprocess
from pathlib import Path

from audit.references import broken_references


def test_every_citation_leads_somewhere() -> None:
    assert broken_references() == []


def test_what_is_broken_is_found(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "here.md").write_text("# Title\n\n## One\n\n**Two** is bold.\n")
    lines = [
        '"""See docs/here.md, "One", docs/here.md, "Two" and docs/here.md.',
        'See docs/here.md, "Three".',
        "See docs/gone.md.",
        "# a rule of " + "DESIGN.md",
        '"""',
    ]
    (tmp_path / "module.py").write_text("\n".join(lines))
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    assert broken_references(tmp_path) == [
        "module.py:2: docs/here.md has no heading 'Three'",
        "module.py:3: docs/gone.md is not there",
        "module.py:4: DESIGN.md is no document of ours",
    ]
