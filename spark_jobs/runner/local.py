"""A run on files, in this process: what `portolan job run` does without a service."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from spark_jobs.runner.control import Control
from spark_jobs.runner.execution import Ending, Run
from spark_jobs.runner.results import ResultFiles
from spark_jobs.runner.run_directory import RunDirectory
from spark_jobs.runner.target import FORMS, fill

__all__ = ["conduct", "write_result"]

_LOOK_S: Final = 0.2
_INTERRUPT_S: Final = 0.5


def conduct(run: Run, control: Control, look: Callable[[], None]) -> Ending:
    """Carry out a run in a thread of its own; `look` is called while it goes.

    A `KeyboardInterrupt` cancels the run, which then ends as cancelled.
    """
    endings: list[Ending] = []
    thread = threading.Thread(target=lambda: endings.append(run.carry_out()), name="run")
    thread.start()
    while thread.is_alive():
        try:
            thread.join(_INTERRUPT_S if control.cancelled else _LOOK_S)
            look()
        except KeyboardInterrupt:
            control.cancel()
        if control.cancelled and thread.is_alive():
            run.interrupt()
    return endings[0]


def write_result(directory: RunDirectory, ending: Ending, target: Path) -> None:
    """Write the result of a run to a file, whose suffix says the form; whole, or not at all.

    Raises:
        OSError: It cannot be written.
        KeyError: The suffix names no form.
    """
    assert ending.result is not None
    files = ResultFiles(directory.frame(ending.result))
    form = FORMS[target.suffix.lower()]
    fill(target, files.stream(form))
