"""Shared by the commands of jobs: job files, progress of a run, and its reasons."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from app.commands.consoles import errors
from app.commands.running import read_document

__all__ = [
    "EXIT",
    "bars",
    "check_target",
    "print_reasons",
    "read_job_file",
    "show",
]

_MAX_BYTES: Final = 2**20

EXIT: Final = {"done": 0, "stopped": 3, "failed": 1, "cancelled": 130}
"""Exit statuses by the final state of a run."""


def read_job_file(path: Path) -> dict[str, Any]:
    return read_document(path, _MAX_BYTES, "job")


def bars() -> Progress:
    """Return progress bars on standard error, to be updated by `show`."""
    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()
    return Progress(*columns, console=errors)


def show(progress: Progress, stages: Iterable[dict[str, Any]]) -> None:
    """Update the bars: one for each stage that has started."""
    task_ids = {task.description: task.id for task in progress.tasks}
    for stage in stages:
        if stage["state"] == "waiting":
            continue
        name = stage["name"]
        total = stage["total"] or None
        if name not in task_ids:
            task_ids[name] = progress.add_task(name, total=total)
        progress.update(task_ids[name], completed=stage["done"], total=total)
        if stage["state"] == "done":
            progress.stop_task(task_ids[name])


def print_reasons(state: str, reasons: Iterable[str]) -> None:
    ending = "was stopped" if state == "stopped" else "failed"
    for reason in reasons:
        errors.print(f"The run {ending}: {reason}")


def check_target(out: Path) -> None:
    from spark_jobs.runner.results import FORMATS

    if out.suffix.lower() not in FORMATS:
        raise typer.BadParameter(f"--out must end with one of {', '.join(FORMATS)}.")
    if not out.parent.is_dir():
        raise typer.BadParameter(f"There is no directory {out.parent}.")
