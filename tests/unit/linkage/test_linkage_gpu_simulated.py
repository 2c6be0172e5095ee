"""The kernel for GPUs in Numba's simulator: its logic, where there is no such device."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

CHECKS = Path(__file__).with_name("test_linkage_gpu.py")


def test_the_kernel_in_the_simulator_finds_the_pairs_of_the_processor() -> None:
    """In a process of its own: Numba looks at the environment when it is imported."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CHECKS)]
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed, 2 skipped", done.stdout)
    assert passed, done.stdout
    assert int(passed[1]) >= 10
