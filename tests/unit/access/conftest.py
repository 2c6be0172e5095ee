"""A token issuer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.access.issuers import (
    Issuer,
)


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path / "keys.json")
