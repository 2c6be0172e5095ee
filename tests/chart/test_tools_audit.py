"""The audit of the chart's tools: the real govulncheck, with the test's own database."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from audit.go_modules import audit_go

pytestmark = pytest.mark.chart

ROOT = Path(__file__).parents[2]
HELM = "helm.sh/helm/v3"


def entry(module: str, package: str) -> dict[str, Any]:
    """Return a vulnerability that every version of a module has, in one of its packages (OSV)."""
    return {
        "schema_version": "1.3.1",
        "id": "GO-2026-0001",
        "modified": "2026-01-01T00:00:00Z",
        "affected": [
            {
                "package": {"name": module, "ecosystem": "Go"},
                "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}],
                "ecosystem_specific": {"imports": [{"path": package}]},
            }
        ],
    }


@pytest.mark.parametrize("package", ["pkg/action", "pkg/that/nobody/imports"])
def test_a_vulnerable_module_of_a_tool_is_reported(package: str, tmp_path: Path) -> None:
    vulnerability = entry(HELM, f"{HELM}/{package}")
    (tmp_path / "GO-2026-0001.json").write_text(json.dumps(vulnerability))
    outcome = audit_go(ROOT, tmp_path.as_uri())
    version = re.search(rf"{HELM} (v\S+)", (ROOT / "helm/tools/go.mod").read_text())
    assert version is not None
    assert outcome.unknown == ()
    assert outcome.wrong == (f"{HELM} {version[1]}: GO-2026-0001, fixed in none yet",)


def test_tools_without_a_known_vulnerability_pass(tmp_path: Path) -> None:
    vulnerability = entry("example.org/others", "example.org/others")
    (tmp_path / "GO-2026-0001.json").write_text(json.dumps(vulnerability))
    assert audit_go(ROOT, tmp_path.as_uri()).passes(strict=True)
