"""The chart as Helm renders it with each file of example values."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

from helm.reference import CHART

Manifest: TypeAlias = dict[str, Any]
Render: TypeAlias = Callable[..., list[Manifest]]

EXAMPLES = sorted((CHART / "ci").glob("*.yaml"))
HELM = CHART.parents[1] / ".tools" / "helm"


@pytest.fixture(scope="session", params=EXAMPLES, ids=lambda path: path.stem)
def manifests(request: pytest.FixtureRequest, render: Render) -> list[Manifest]:
    """All objects of an installation with example values."""
    return render("-f", str(request.param))


@pytest.fixture(scope="session")
def render() -> Render:
    """Renders the chart with some arguments."""

    def run_helm(*arguments: str, chart: Path = CHART) -> list[Manifest]:
        command = (str(HELM), "template", "look", str(chart), "--namespace", "prod")
        process = subprocess.run(
            [*command, "--kube-version", "1.34", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert process.returncode == 0, process.stderr
        return [manifest for manifest in yaml.safe_load_all(process.stdout) if manifest]

    return run_helm


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A writable copy of the chart."""
    return Path(shutil.copytree(CHART, tmp_path / "portolan"))
