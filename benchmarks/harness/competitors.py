"""Runs competitors in their own environment, which `make competitors` installs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

from app.commands.demo.failed import Failed

__all__ = ["generate_tpch", "packages", "run_competitor"]

_ROOT: Final = Path(__file__).parents[2]
_SCRIPT: Final = Path(__file__).with_name("competing_linkage.py")
_VARIABLE: Final = "PORTOLAN_COMPETITORS"


def run_competitor(task: str, **arguments: Any) -> dict[str, Any]:
    """Run a task of a competitor, timed in its own process.

    Raises:
        Failed: The competitors are not installed, or the task failed.
    """
    reply: dict[str, Any] = json.loads(
        _run("python", str(_SCRIPT), json.dumps({"task": task, **arguments}))
    )
    return reply


def generate_tpch(scale: float, folder: Path) -> None:
    """Write the eight tables of TPC-H as Parquet, one file each.

    Raises:
        Failed: The generator is not installed, or failed.
    """
    _run("tpchgen-cli", "parquet", "-s", f"{scale:g}", f"--output-dir={folder}")


def packages() -> list[Path]:
    """Return the folders of the competitors' packages, for packages of data; empty: none."""
    return sorted(_environment().glob("lib/python3.*/site-packages"))


def _environment() -> Path:
    return Path(os.environ.get(_VARIABLE, _ROOT / ".venv-competitors"))


def _run(program: str, *arguments: str) -> str:
    path = _environment() / "bin" / program
    if not path.exists():
        raise Failed(
            f"the competitors are not installed: run `make competitors`, or set {_VARIABLE}"
        )
    process = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)
    if process.returncode:
        raise Failed(f"the competitor failed: {process.stderr.strip().splitlines()[-1]}")
    return process.stdout
