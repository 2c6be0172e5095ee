"""A DuckDB of a stage, in memory: what it is given, and how it is stopped.

It sees the tables that it is given, and neither files nor the network. Each piece of work is done
in a thread of its own while the stage looks whether the run is to end. An interruption between two
queries hits neither, so it is repeated until the work has ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias, TypeVar

import duckdb
from splink import DuckDBAPI

from spark_jobs.runner.port import StageContext

__all__ = ["Step", "connected", "done_in_steps", "splink_api"]

_LOOK_S: Final = 0.2
_MEMORY: Final = "50%"  # the other half is for Spark

AnswerT = TypeVar("AnswerT")
Step: TypeAlias = Callable[[duckdb.DuckDBPyConnection], AnswerT]


@contextmanager
def connected() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database that is gone when the block ends."""
    with TemporaryDirectory(prefix="portolan-duckdb-") as spilled:
        closed = {"enable_external_access": "false", "autoload_known_extensions": "false"}
        room = {"temp_directory": spilled, "memory_limit": _MEMORY}
        connection = duckdb.connect(":memory:", config={**closed, **room})
        try:
            yield connection
        finally:
            connection.close()


def splink_api(connection: duckdb.DuckDBPyConnection) -> DuckDBAPI:
    """Splink's view of a database; it tells errors only, for nobody reads its advice here."""
    logging.getLogger("splink").setLevel(logging.ERROR)
    return DuckDBAPI(connection)


def done_in_steps(
    context: StageContext, connection: duckdb.DuckDBPyConnection, steps: Sequence[Step[AnswerT]]
) -> list[AnswerT]:
    """Do one step after the other; what they answer.

    Raises:
        RunCancelled: The run is to end; nothing is under way any more.
    """
    answers = []
    with ThreadPoolExecutor(1, "duckdb") as thread:
        for number, step in enumerate(steps):
            doing = thread.submit(step, connection)
            try:
                while not wait([doing], _LOOK_S).done:
                    context.progress(number, len(steps))
            finally:
                _stop(doing, connection)
            answers.append(doing.result())
    context.progress(len(steps), len(steps))
    return answers


def _stop(doing: Future[AnswerT], connection: duckdb.DuckDBPyConnection) -> None:
    while not doing.done():
        connection.interrupt()
        wait([doing], _LOOK_S)
