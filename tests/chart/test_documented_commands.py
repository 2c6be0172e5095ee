"""The commands of docs/deployment.md: as far as there is no cluster, they do what the page says."""

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
SCHEMAS = next(each for each in VALUES if "schemas" in each)
EXECUTORS = next(each for each in VALUES if "executors" in each.get("networkPolicy", {}))


def commands(program: str) -> Iterator[list[str]]:
    for line in COMMANDS.splitlines():
        words = shlex.split(line)
        if words[:1] == [program]:
            yield words[1:]


@pytest.fixture
def trial(render: Render, tmp_path: Path) -> list[dict[str, Any]]:
    """What the commands of the trial make of the chart in the end."""
    (tmp_path / "shop.yaml").write_text(yaml.safe_dump(SCHEMAS))
    given: list[str] = []
    rendered: list[dict[str, Any]] = []
    for command, release, *words in commands("helm"):
        if command in ("install", "upgrade") and release == "look":
            chart, *options = words
            assert chart == "helm/portolan"
            kept = [each for each in options if each not in ("--wait", "--reuse-values")]
            given += [str(tmp_path / each) if each.endswith(".yaml") else each for each in kept]
            rendered = render(*given)
    return rendered


def test_the_commands_of_the_trial_install_what_they_say(trial: list[dict[str, Any]]) -> None:
    names = {(each["kind"], each["metadata"]["name"]) for each in trial}
    assert ("Job", "look-portolan-schemas") in names
    for kind, name in re.findall(r"\b(deployment|service|job)/(look-[a-z-]+)", PAGE):
        assert (kind.capitalize(), name) in names


def test_the_images_that_are_loaded_are_built_and_used(trial: list[dict[str, Any]]) -> None:
    built = {words[4] for words in commands("docker") if words[0] == "build"}
    loaded = {image for words in commands("kind") if words[0] == "load" for image in words[2:]}
    loaded_too = {image for words in commands("minikube") for image in words[2:]}
    assert built == loaded == loaded_too == {"portolan:0.1.0", "portolan-worker:0.1.0"}
    pods = [each["spec"]["template"]["spec"] for each in trial if each["kind"] == "Deployment"]
    assert {pod["containers"][0]["image"] for pod in pods} <= built


def test_the_values_for_a_spark_cluster_go_together(render: Render, tmp_path: Path) -> None:
    """Pods of the example are admitted both ways, and know the address that executors use."""
    (tmp_path / "executors.yaml").write_text(yaml.safe_dump(EXECUTORS))
    external = str(CHART / "ci" / "external-values.yaml")
    rendered = render("-f", external, "-f", str(tmp_path / "executors.yaml"))
    named = {(each["kind"], each["metadata"]["name"]): each for each in rendered}
    policy = named["NetworkPolicy", "look-portolan-worker"]["spec"]
    assert policy["ingress"] == [{"from": EXECUTORS["networkPolicy"]["executors"]}]
    pod = named["Deployment", "look-portolan-worker"]["spec"]["template"]["spec"]
    [worker] = pod["containers"]
    assert EXECUTORS["extraEnv"][0] in worker["env"]


def test_the_job_runs_a_command_that_there_is(trial: list[dict[str, Any]], tmp_path: Path) -> None:
    """It reads what the ConfigMap holds, and says who does not answer."""
    named = {(each["kind"], each["metadata"]["name"]): each for each in trial}
    folder = tmp_path / "schemas"
    folder.mkdir()
    for name, text in named["ConfigMap", "look-portolan-schemas"]["data"].items():
        (folder / name).write_text(text)
    [container] = named["Job", "look-portolan-schemas"]["spec"]["template"]["spec"]["containers"]
    [mount] = [each for each in container["volumeMounts"] if each["name"] == "schemas"]
    changed = {mount["mountPath"]: str(folder), "120": "0"}
    words = [changed.get(word, word) for word in container["args"]]
    words[-1] = "http://127.0.0.1:1"
    done = run(
        [sys.executable, "-c", "from app.cli import main; main()", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "The service at http://127.0.0.1:1 does not answer" in done.stderr
