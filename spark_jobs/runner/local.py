"""Executes a run on files in this process: `portolan job run`."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Final

import orjson

from spark_jobs.atomic_file import atomic_file
from spark_jobs.runner.attempt import Ending, RunAttempt
from spark_jobs.runner.control import Control
from spark_jobs.runner.results import FORMATS, ResultFiles
from spark_jobs.runner.run_directory import RunDirectory

__all__ = ["run_to_end", "write_reports", "write_result"]

_POLL_S: Final = 0.2
_INTERRUPT_INTERVAL_S: Final = 0.5


def run_to_end(attempt: RunAttempt, control: Control, look: Callable[[], None]) -> Ending:
    """Execute an attempt in a separate thread; call `look` while it runs.

    A `KeyboardInterrupt` cancels the run.

    Raises:
        SparkUnavailable: The run needs a session, and none can be opened.
    """
    with ThreadPoolExecutor(1, "run") as thread:
        ending = thread.submit(attempt.execute)
        while not ending.done():
            try:
                wait([ending], _INTERRUPT_INTERVAL_S if control.cancelled else _POLL_S)
                look()
            except KeyboardInterrupt:
                control.cancel()
            if control.cancelled and not ending.done():
                attempt.interrupt()
        return ending.result()


def write_result(directory: RunDirectory, ending: Ending, target: Path) -> None:
    """Write the result of a run to a file, in the format of its suffix, atomically.

    Raises:
        OSError: It cannot be written.
        KeyError: The suffix has no format.
    """
    assert ending.result is not None
    files = ResultFiles(directory.frame(ending.result))
    format_ = FORMATS[target.suffix.lower()]
    with atomic_file(target) as file:
        file.writelines(files.stream(format_))


def write_reports(directory: RunDirectory, target: Path) -> None:
    """Write the reports of all finished stages to a JSON file, by name, atomically.

    Raises:
        OSError: It cannot be written.
    """
    reports: dict[str, Any] = {}
    for stage in directory.stages.values():
        reports |= stage.reports
    with atomic_file(target) as file:
        file.write(orjson.dumps(reports, option=orjson.OPT_INDENT_2))
