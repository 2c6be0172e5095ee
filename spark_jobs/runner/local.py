"""A run on files, in this process: what `portolan job run` does without a service."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from spark_jobs.runner.control import Control
from spark_jobs.runner.execution import Ending, Run
from spark_jobs.runner.results import Form, ResultFiles
from spark_jobs.runner.run_directory import RunDirectory

__all__ = ["FORMS", "conduct", "write_result"]

FORMS: Final[dict[str, Form]] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
}
"""The form of a result by the suffix of its file."""

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
    with _in_place(target) as written, written.open("wb") as file:
        for piece in files.stream(form):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _in_place(target: Path) -> Iterator[Path]:
    written = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        yield written
        written.replace(target)
    finally:
        written.unlink(missing_ok=True)
