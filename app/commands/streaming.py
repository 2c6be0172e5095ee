"""Shared by commands that execute a streaming query on Spark, with its state in a directory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.commands.running import NOT_DONE, readable_errors

if TYPE_CHECKING:
    from spark_jobs.commit_directory import CommitDirectory
    from spark_jobs.session import SparkOptions

__all__ = ["Follow", "locked_session", "spark_options", "trigger"]

Follow = Annotated[bool, typer.Option("--follow", help="Wait for more input until interrupted.")]


def spark_options() -> SparkOptions:
    """Return Spark's options before any import that needs Spark; end the command without Spark."""
    from app.settings.main import JobSettings
    from spark_jobs.session import SparkUnavailable, check_spark

    options = JobSettings().spark_options()
    with readable_errors(NOT_DONE, SparkUnavailable):
        check_spark(options)
    return options


@contextmanager
def locked_session(
    options: SparkOptions, work: str, directory: CommitDirectory[Any], *failures: type[Exception]
) -> Iterator[Any]:
    """Open a session whose driver is this process, and lock a directory.

    The server of Spark Connect would drive batches without the lock on the directory.

    Args:
        work: The work, for error messages.
        directory: The directory of the state.
        failures: Further errors that end the command with a sentence.
    """
    from spark_jobs.commit_directory import StateBusy, StateMismatch
    from spark_jobs.session import SparkUnavailable, driven_session
    from spark_jobs.streaming_queries import Failed

    common_failures = (SparkUnavailable, Failed, StateBusy, StateMismatch, OSError)
    with (
        readable_errors(NOT_DONE, *common_failures, *failures),
        driven_session(options, work) as session,
        directory.locked(),
    ):
        yield session


def trigger(*, follow: bool) -> dict[str, bool] | None:
    """Return Spark's trigger: process all available input and end, or follow new input."""
    return None if follow else {"availableNow": True}
