"""The logic of the GPU kernel in Numba's simulator, without a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

CHECKS = Path(__file__).with_name("test_linkage_gpu.py")


def test_the_kernel_in_the_simulator_finds_the_pairs_of_the_cpu() -> None:
    """Runs in a separate process, because Numba reads the environment on import."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CHECKS)]
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTEST_ADDOPTS": ""}
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout
    passed = re.search(r"(\d+) passed, 2 skipped", process.stdout)
    assert passed, process.stdout
    assert int(passed[1]) >= 10
