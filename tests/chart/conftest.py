"""What Helm makes of the chart with each file of example values."""

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

    def rendered(*arguments: str, chart: Path = CHART) -> list[Manifest]:
        command = (str(HELM), "template", "look", str(chart), "--namespace", "prod")
        done = subprocess.run(
            [*command, "--kube-version", "1.34", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [each for each in yaml.safe_load_all(done.stdout) if each]

    return rendered


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the chart, to break."""
    return Path(shutil.copytree(CHART, tmp_path / "portolan"))
