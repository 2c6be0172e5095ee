"""A data directory for embedded servers."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mediator.embedded.process import wait_for
from tests.process.embedded.servers import WITHIN_S, processes_in


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A data directory with a short path; whatever a failed test leaves running is ended."""
    directory = Path(tempfile.mkdtemp(prefix="portolan-")).resolve()
    directory.chmod(0o711)
    yield directory
    for process in processes_in(directory):
        process.kill()
    wait_for(lambda: not processes_in(directory), WITHIN_S)
    shutil.rmtree(directory)
