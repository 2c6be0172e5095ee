"""The shipped JavaScript matches its sources, by their digest; `make js` builds it."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

JS = Path(__file__).parents[3] / "sketch" / "js"
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
