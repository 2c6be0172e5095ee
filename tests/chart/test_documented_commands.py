"""The commands of docs/deployment.md do what the page says, as far as they need no cluster."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import run
from typing import Any

import pytest
import yaml

from helm.reference import CHART
from tests.chart.conftest import Render

pytestmark = pytest.mark.chart

PAGE = (CHART.parents[1] / "docs" / "deployment.md").read_text()
BLOCKS = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = "".join(block.replace("\\\n", " ") for language, block in BLOCKS if not language)
VALUES = [yaml.safe_load(block) for language, block in BLOCKS if language == "yaml"]
SCHEMAS = next(values for values in VALUES if "schemas" in values)
EXECUTORS = next(values for values in VALUES if "executors" in values.get("networkPolicy", {}))


def commands(program: str) -> Iterator[list[str]]:
    for line in COMMANDS.splitlines():
        words = shlex.split(line)
        if words[:1] == [program]:
            yield words[1:]


@pytest.fixture
def trial(render: Render, tmp_path: Path) -> list[dict[str, Any]]:
    """The objects that the last command of the trial renders."""
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump(SCHEMAS))
    arguments: list[str] = []
    rendered: list[dict[str, Any]] = []
    for command, release, *words in commands("helm"):
        if command in ("install", "upgrade") and release == "look":
            chart, *options = words
            assert chart == "helm/portolan"
            relevant = [option for option in options if option not in ("--wait", "--reuse-values")]
            arguments += [
                str(tmp_path / option) if option.endswith(".yaml") else option
                for option in relevant
            ]
            rendered = render(*arguments)
    return rendered


def test_the_commands_of_the_trial_install_the_named_objects(trial: list[dict[str, Any]]) -> None:
    names = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in trial}
    assert ("Job", "look-portolan-schemas") in names
    for kind, name in re.findall(r"\b(deployment|service|job)/(look-[a-z-]+)", PAGE):
        assert (kind.capitalize(), name) in names


def test_the_images_that_are_loaded_are_built_and_used(trial: list[dict[str, Any]]) -> None:
    built_images = {words[4] for words in commands("docker") if words[0] == "build"}
    kind_images = {image for words in commands("kind") if words[0] == "load" for image in words[2:]}
    minikube_images = {image for words in commands("minikube") for image in words[2:]}
    assert (
        built_images
        == kind_images
        == minikube_images
        == {"portolan:0.1.0", "portolan-worker:0.1.0"}
    )
    pods = [
        manifest["spec"]["template"]["spec"]
        for manifest in trial
        if manifest["kind"] == "Deployment"
    ]
    assert {pod["containers"][0]["image"] for pod in pods} <= built_images


def test_the_values_for_a_spark_cluster_go_together(render: Render, tmp_path: Path) -> None:
    """Pods of the example are admitted both ways, and know the address that executors use."""
    (tmp_path / "executors.yaml").write_text(yaml.safe_dump(EXECUTORS))
    external = str(CHART / "ci" / "external-values.yaml")
    rendered = render("-f", external, "-f", str(tmp_path / "executors.yaml"))
    manifests_by_name = {
        (manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in rendered
    }
    policy = manifests_by_name["NetworkPolicy", "look-portolan-worker"]["spec"]
    assert policy["ingress"] == [{"from": EXECUTORS["networkPolicy"]["executors"]}]
    pod = manifests_by_name["Deployment", "look-portolan-worker"]["spec"]["template"]["spec"]
    [worker] = pod["containers"]
    assert EXECUTORS["extraEnv"][0] in worker["env"]


def test_the_job_runs_an_existing_command(trial: list[dict[str, Any]], tmp_path: Path) -> None:
    """It reads the ConfigMap, and names the service that does not answer."""
    manifests_by_name = {
        (manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in trial
    }
    folder = tmp_path / "schemas"
    folder.mkdir()
    for name, text in manifests_by_name["ConfigMap", "look-portolan-schemas"]["data"].items():
        (folder / name).write_text(text)
    [container] = manifests_by_name["Job", "look-portolan-schemas"]["spec"]["template"]["spec"][
        "containers"
    ]
    [mount] = [volume for volume in container["volumeMounts"] if volume["name"] == "schemas"]
    replacements = {mount["mountPath"]: str(folder), "120": "0"}
    words = [replacements.get(word, word) for word in container["args"]]
    words[-1] = "http://127.0.0.1:1"
    process = run(
        [sys.executable, "-c", "from app.cli import main; main()", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 1, process.stderr
    assert "The service at http://127.0.0.1:1 does not answer" in process.stderr
