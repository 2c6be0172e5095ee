"""The wheel of the Python client needs its dependencies, and nothing of the server."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
PROJECT = ROOT / "clients" / "python"
SERVER = ("app", "mediator", "portolan", "redis_connection", "sketch", "spark_jobs")

PROGRAM = """
import importlib, pkgutil, sys
sys.path += sys.argv[1:]
import httpx, portolan_client
for module in pkgutil.walk_packages(portolan_client.__path__, "portolan_client."):
    importlib.import_module(module.name)
answer = lambda request: httpx.Response(200, json={"id": "a"})
with portolan_client.Client("http://p", "shop", transport=httpx.MockTransport(answer)) as shop:
    assert shop.put("products", "a", {}).value == {"id": "a"}
print(portolan_client.__file__, *sorted(name.partition(".")[0] for name in sys.modules))
"""


def build_wheel(project: Path, folder: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=project,
        check=True,
        capture_output=True,
    )
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(PROJECT, tmp_path_factory.mktemp("client"))


def required_distributions(name: str, extra: str = "") -> set[str]:
    """Return the distributions that a distribution needs on this machine, including itself."""
    requirements = [Requirement(line) for line in distribution(name).requires or ()]
    applicable = [
        requirement
        for requirement in requirements
        if not requirement.marker or requirement.marker.evaluate({"extra": extra})
    ]
    return {name}.union(*(required_distributions(requirement.name) for requirement in applicable))


def link_installed(names: set[str], folder: Path) -> None:
    """Link the installed files of distributions into a separate folder."""
    for name in names:
        for file in distribution(name).files or ():
            top = file.parts[0]
            if top != ".." and not (folder / top).exists():
                (folder / top).symlink_to(str(distribution(name).locate_file(top)))


def test_the_wheel_is_the_package_and_its_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        [path] = [name for name in names if name.endswith("METADATA")]
        metadata = message_from_bytes(archive.read(path))
    sources = {
        path.relative_to(PROJECT).as_posix() for path in PROJECT.rglob("portolan_client/*.py")
    }
    files = {name for name in names if ".dist-info/" not in name}
    assert files == {*sources, "portolan_client/py.typed"}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    dependencies = {Requirement(line).name for line in metadata.get_all("Requires-Dist", [])}
    assert (metadata["Name"], dependencies) == ("portolan-client", {"httpx", "sniffio"})


def test_it_runs_with_only_its_dependencies_installed(wheel: Path, tmp_path: Path) -> None:
    """The environment's own packages are left out: they put this repository on the path."""
    site_packages = tmp_path / "installed"
    site_packages.mkdir()
    link_installed(required_distributions("httpx"), site_packages)
    process = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROGRAM, str(wheel), str(site_packages)],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    file, *modules = process.stdout.split()
    assert file.startswith(str(wheel))
    assert {"portolan_client", "httpx"} <= set(modules)
    assert not set(modules) & {*SERVER, "orjson", "pydantic"}


def test_the_server_is_installed_without_the_client(tmp_path: Path) -> None:
    with zipfile.ZipFile(build_wheel(ROOT, tmp_path)) as archive:
        assert not [
            name for name in archive.namelist() if re.match(r"clients/|portolan_client/", name)
        ]


def test_both_are_built_and_typed_for_the_same_versions() -> None:
    texts = [(folder / "pyproject.toml").read_text() for folder in (ROOT, PROJECT)]
    for pattern in (r"^requires = .*$", r"^requires-python = .*$", r"^license = .*$"):
        first, second = (re.findall(pattern, text, re.MULTILINE) for text in texts)
        assert first == second
    assert (ROOT / "LICENSE").read_bytes() == (PROJECT / "LICENSE").read_bytes()
