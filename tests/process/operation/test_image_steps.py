"""The steps of the API's image, without an engine: installed into an empty prefix, and started.

The quick tests run the tree on an interpreter that sees only the image's packages; the large one
runs the RUN steps of the Dockerfile, which download packages.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import packages_distributions
from pathlib import Path

import httpx
import pytest

from mediator.stores.port import SystemConfig
from tests.faults.caching.redis_server import running
from tests.process.operation.image import ROOT, STAGES
from tests.process.service import scratch_database

HIDING = """
import json, sys
from importlib.abc import MetaPathFinder

HIDDEN = set(json.loads({hidden!r}))

class Hiding(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hiding())
"""
TREE = (sys.executable, "-c", "from app.cli import main; main()")


def image_packages() -> set[str]:
    text = (ROOT / "requirements-api.lock").read_text()
    names = re.findall(r"^([\w.-]+)==", text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower() for name in [*names, "portolan", "pip"]}


@pytest.fixture
def base_only(tmp_path: Path) -> dict[str, str]:
    """An environment in which Python finds only the packages of the image."""
    packages = image_packages()
    hidden = [
        module
        for module, owners in packages_distributions().items()
        if not packages & {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners}
    ]
    (tmp_path / "sitecustomize.py").write_text(HIDING.format(hidden=json.dumps(hidden)))
    return {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}


@pytest.fixture
async def settings(
    own_systems: Sequence[SystemConfig],
    postgresql_config: SystemConfig,
) -> AsyncIterator[dict[str, str]]:
    """Settings of a service on the databases of the run; it has its own Redis."""
    names = ("name", "kind", "url", "deadline_s", "namespace")
    systems = [{name: getattr(config, name) for name in names} for config in own_systems]
    with running("image") as coordination:
        async with scratch_database(postgresql_config) as catalogue:
            yield {
                "PORTOLAN_CATALOGUE_URL": catalogue,
                "PORTOLAN_COORDINATION_URL": coordination.url,
                "PORTOLAN_METRICS_OPEN": "true",
                "PORTOLAN_SYSTEMS": json.dumps(systems),
            }


async def execute(
    *command: str, env: Mapping[str, str], cwd: Path = ROOT
) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, stderr=STDOUT, env={**env, "COLUMNS": "200"}, cwd=cwd
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()


@asynccontextmanager
async def serving(*command: str, env: Mapping[str, str], cwd: Path) -> AsyncIterator[str]:
    """Start the service and yield the address of its admin API; SIGTERM must end it cleanly."""
    process = await asyncio.create_subprocess_exec(
        *(*command, "serve", "--port", "0", "--admin-port", "0"),
        stdout=PIPE,
        stderr=STDOUT,
        env={**env, "COLUMNS": "200", "PYTHONUNBUFFERED": "1"},
        cwd=cwd,
    )
    assert process.stdout is not None
    output = ""
    while not (match := re.search(r"Admin API\s+(http://\S+?)/admin/v1/", output)):
        line = await process.stdout.readline()
        assert line, output
        output += line.decode()
    try:
        yield match[1]
    finally:
        process.terminate()
        remaining, _ = await process.communicate()
    assert process.returncode == 0, output + remaining.decode()


async def assert_it_answers(admin: str) -> None:
    async with httpx.AsyncClient(base_url=admin, timeout=30.0) as http:
        assert (await http.get("/live")).status_code == 200
        ready = await http.get("/ready")
        while ready.status_code != 200:  # systems are probed first
            ready = await http.get("/ready")
        metrics = (await http.get("/metrics")).text
        assert "\n# TYPE http_server_active_requests gauge\n" in metrics


async def test_the_image_has_all_that_the_command_line_needs(base_only: dict[str, str]) -> None:
    code, output = await execute(*TREE, "--help", env=base_only)
    assert code == 0, output
    code, output = await execute(sys.executable, "-c", "import pyspark", env=base_only)
    assert code == 1
    assert "No module named 'pyspark'" in output


async def test_the_doctor_is_content_in_the_image(
    base_only: dict[str, str], settings: dict[str, str]
) -> None:
    code, output = await execute(*TREE, "doctor", env=base_only | settings)
    assert code == 0, output
    assert "embedded" not in output
    assert re.search(r"found\s+catalogue", output)


async def test_the_doctor_ends_an_upgrade_whose_catalogue_does_not_answer(
    base_only: dict[str, str], settings: dict[str, str]
) -> None:
    unreachable = {**settings, "PORTOLAN_CATALOGUE_URL": "postgresql://u:hush@127.0.0.1:1/none"}
    code, output = await execute(*TREE, "doctor", env=base_only | unreachable)
    assert code == 1
    assert "hush" not in output


async def test_the_image_has_all_that_the_service_needs(
    base_only: dict[str, str], settings: dict[str, str], tmp_path: Path
) -> None:
    async with serving(*TREE, env=base_only | settings, cwd=tmp_path) as admin:
        await assert_it_answers(admin)


@pytest.mark.large
@pytest.mark.timeout(1200)
async def test_the_steps_of_the_dockerfile(settings: dict[str, str], tmp_path: Path) -> None:
    """/opt and /src are folders of an empty prefix here."""
    source, prefix = tmp_path / "src", tmp_path / "opt"
    for directory in (source, prefix):
        directory.mkdir()
    for *names, _ in STAGES["build"].copies():
        for name in names:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, source / name)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["PATH"] = f"{Path(sys.base_prefix) / 'bin'}:{os.environ['PATH']}"
    for step in STAGES["build"].all("RUN"):
        command = step.replace("python -m venv", f"{sys.executable} -m venv")
        command = command.replace("/opt/", f"{prefix}/")
        code, output = await execute("sh", "-ec", command, env=environment, cwd=source)
        assert code == 0, f"{command}\n{output}"
    shutil.rmtree(source)  # nothing of the tree is in the image
    portolan, python = (str(prefix / "portolan" / "bin" / name) for name in ("portolan", "python"))
    code, output = await execute(python, "-c", "import pyspark", env=environment, cwd=tmp_path)
    assert (code, "No module named 'pyspark'" in output) == (1, True)
    code, output = await execute(portolan, "--help", env=environment, cwd=tmp_path)
    assert code == 0, output
    async with serving(portolan, env=environment | settings, cwd=tmp_path) as admin:
        await assert_it_answers(admin)
