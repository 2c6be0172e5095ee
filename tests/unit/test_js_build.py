"""The shipped JavaScript is what its sources build: checked by their digest, and by building it."""

from __future__ import annotations

import json
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

JS = Path(__file__).parents[2] / "sketch" / "js"
SHIPPED = ("portolan.mjs", "transactions.mjs")


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_module_was_built_from_these_sources(name: str) -> None:
    digest = sha256()
    for source in sorted((JS / "src").iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    first, *_ = (JS / name).read_text().splitlines()
    assert first == f"// Apache-2.0. Built from src/ (sha256 {digest.hexdigest()})."


@pytest.mark.parametrize("name", SHIPPED)
def test_the_source_map_has_the_sources(name: str) -> None:
    assert (JS / name).read_text().rstrip().endswith(f"//# sourceMappingURL={name}.map")
    source_map = json.loads((JS / f"{name}.map").read_text())
    for path, content in zip(source_map["sources"], source_map["sourcesContent"], strict=True):
        assert (JS / path).read_text() == content


def test_building_again_gives_the_same() -> None:
    """Where the minifier is installed: `npm ci` in sketch/js."""
    node = shutil.which("node")
    if node is None or not (JS / "node_modules" / "esbuild").exists():
        pytest.skip("esbuild is not installed")
    subprocess.run([node, "build.mjs", "--check"], cwd=JS, check=True)
