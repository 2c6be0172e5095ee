"""The documentation's map of the stores lists the files of their packages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
STORES = ("postgres", "mongo", "redis")
STORE_SPECIFIC = {"postgres": {"sql.py", "statements.py"}, "mongo": set(), "redis": {"scripts"}}


@pytest.mark.parametrize("store", STORES)
def test_every_file_of_a_store_is_on_the_map(store: str) -> None:
    column = 3 + STORES.index(store)
    page = (ROOT / "docs/stores.md").read_text().split("## The map of a store")[1].split("\n## ")[0]
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    mapped = {name.rstrip("/") for row in rows for name in re.findall("`(.+?)`", row[column])}
    entries = (ROOT / "mediator/stores" / store).iterdir()
    present = {entry.name for entry in entries if not entry.name.startswith("__")}
    assert mapped == present - STORE_SPECIFIC[store]
