"""Checks that every document cited by code and pages exists: `python -m audit.references`.

A citation is a path below the repository, `docs/transactions.md`, and may name a heading of it:
`docs/transactions.md, "Fences"`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["broken_references", "main"]

ROOT: Final = Path(__file__).parents[1]
READ: Final = (".py", ".lua", ".mjs", ".js", ".java", ".vcl", ".conf", ".yaml", ".toml", ".html")
_CITED: Final = re.compile(
    r'(?<![\w/.-])((?:docs|tests)/[\w/-]+\.(?:md|py))(?:[,:]?\s+(?:(?:#|--)\s+)?"([^"\n]+)")?'
)
_FOREIGN: Final = re.compile(r"\b(?:COHERENCE|DESIGN|REVIEW|LAYOUT|VOCABULARY)\.md\b|\bDESIGN, ")


def broken_references(root: Path = ROOT) -> list[str]:
    """Return broken citations, as ``file:line: what``."""
    return [
        f"{file.relative_to(root)}:{line}: {wrong}"
        for file in _files(root)
        for line, wrong in _broken_in(root, file.read_text())
    ]


def _files(root: Path) -> list[Path]:
    names = subprocess.run(
        ["git", "ls-files"],  # noqa: S607 - the developer's own git
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    files = [root / name for name in names if name.endswith(READ)]
    return [file for file in files if file.is_file() and file != Path(__file__)]


def _broken_in(root: Path, text: str) -> list[tuple[int, str]]:
    citations = [(match, _wrong(root, match[1], match[2])) for match in _CITED.finditer(text)]
    citations += [
        (match, f"{match[0]} is no document of ours") for match in _FOREIGN.finditer(text)
    ]
    return [(text.count("\n", 0, match.start()) + 1, wrong) for match, wrong in citations if wrong]


def _wrong(root: Path, path: str, heading: str | None) -> str | None:
    file = root / path
    if not file.is_file():
        return f"{path} is not there"
    if heading is not None and path.endswith(".md") and heading not in _headings(file):
        return f"{path} has no heading {heading!r}"
    return None


@cache
def _headings(file: Path) -> frozenset[str]:
    pairs = re.findall(r"^(?:#+ (.+)$|\*\*(.+?)\.?\*\*)", file.read_text(), re.MULTILINE)
    return frozenset(heading or bold for heading, bold in pairs)


def main() -> int:
    """Print broken citations; return the exit status."""
    broken = broken_references()
    sys.stderr.writelines(f"{line}\n" for line in broken)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
