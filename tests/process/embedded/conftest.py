"""Data directories for embedded servers."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from mediator.embedded.process import wait_for
from tests.process.embedded.servers import WITHIN_S, processes_in


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A data directory with a short path; processes left by a failed test are killed."""
    with _directory() as directory:
        yield directory
        _end_all(directory)


@pytest.fixture(scope="module")
def directory_of_the_module() -> Iterator[Path]:
    with _directory() as directory:
        yield directory


@pytest.fixture
def used_dir(directory_of_the_module: Path) -> Iterator[Path]:
    """A data directory of earlier tests: creating a cluster takes most of a start."""
    yield directory_of_the_module
    _end_all(directory_of_the_module)


@contextmanager
def _directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="portolan-")).resolve()
    directory.chmod(0o711)
    yield directory
    shutil.rmtree(directory)


def _end_all(directory: Path) -> None:
    for process in processes_in(directory):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    wait_for(lambda: not processes_in(directory), WITHIN_S)
