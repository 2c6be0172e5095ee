"""Rivals that cannot live in our environment: they have one of their own, made by `make rivals`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

from app.commands.demo.failed import Failed

__all__ = ["asked"]

_ROOT: Final = Path(__file__).parent.parent
_SCRIPT: Final = Path(__file__).with_name("rival_linkage.py")
_VARIABLE: Final = "PORTOLAN_RIVALS"


def asked(task: str, **given: Any) -> dict[str, Any]:
    """Have a rival do something, timed in its own process.

    Raises:
        Failed: The rivals are not installed, or the task failed.
    """
    environment = Path(os.environ.get(_VARIABLE, _ROOT / ".venv-rivals"))
    python = environment / "bin" / "python"
    if not python.exists():
        raise Failed(f"the rivals are not installed: run `make rivals`, or set {_VARIABLE}")
    command = [str(python), str(_SCRIPT), json.dumps({"task": task, **given})]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"the rival failed: {done.stderr.strip().splitlines()[-1]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
