"""``portolan worker``: execute analytic runs of the queue."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn
from uuid import uuid4

import typer

from app.commands.consoles import console, errors
from app.commands.running import run
from app.service.interruption import NotClosed, closing, stopped_by_signal
from mediator.embedded.port import ServerUnavailable

if TYPE_CHECKING:
    from app.settings.main import JobSettings, MediatorSettings
    from mediator.service import Mediator
    from spark_jobs.runner.worker import Worker
    from spark_jobs.session import LazySession, SparkOptions

__all__ = ["worker"]


def worker(
    *,
    embedded: Annotated[
        bool, typer.Option("--embedded", help="Join the embedded stores of a running service.")
    ] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Data directory of these stores.")] = None,
) -> None:
    """Execute runs until SIGTERM or SIGINT.

    The current run then gets some time, and is released: another worker resumes it after its
    finished stages. Settings are those of the service: docs/settings.md.
    """
    from app.settings.main import HttpSettings
    from spark_jobs.session import SparkUnavailable

    logging.getLogger("portolan").setLevel(HttpSettings().log_level.upper())
    work = _work(embedded=embedded, data_dir=data_dir)
    run(work, SparkUnavailable, ServerUnavailable, who="The worker")


def _settings(*, embedded: bool, data_dir: Path | None) -> MediatorSettings:
    """Return the settings; with the URLs of running embedded stores, which are not started here."""
    from pydantic import SecretStr

    from app.settings.main import MediatorSettings
    from mediator.embedded.fleet import join

    settings = MediatorSettings()
    if data_dir is not None:
        settings = settings.model_copy(update={"data_dir": data_dir})
    if not (embedded or settings.embedded):
        return settings
    redis, postgresql = (SecretStr(endpoint.url) for endpoint in join(settings.data_dir))
    urls = {"catalogue_url": postgresql, "coordination_url": redis}
    return settings.model_copy(update=urls)


def _restart() -> NoReturn:
    """Restart this process: it cannot open a second Spark session.

    Restarts end when Spark does not start. A run that kills sessions is not retried for ever: each
    restart counts as a death of its worker.
    """
    errors.print("Spark has died: the worker restarts.")
    os.execv(sys.executable, sys.orig_argv)  # noqa: S606 - the same command line


async def _work(*, embedded: bool, data_dir: Path | None) -> None:
    from app.service.mediators import writing_mediator
    from app.settings.main import CacheSettings, JobSettings
    from spark_jobs.session import SessionDied

    settings = _settings(embedded=embedded, data_dir=data_dir)
    resources = AsyncExitStack()
    try:
        async with closing(resources.aclose):
            mediator = await resources.enter_async_context(
                writing_mediator(settings, CacheSettings())
            )
            assert settings.catalogue_url is not None  # without it there is no mediator
            # Tasks of Spark inherit the environment of this process.
            os.environ["PORTOLAN_CATALOGUE_URL"] = settings.catalogue_url.get_secret_value()
            if settings.coordination_url is not None:
                url = settings.coordination_url.get_secret_value()
                os.environ["PORTOLAN_COORDINATION_URL"] = url
            await _execute_runs(mediator, settings, JobSettings(), resources)
    except (SessionDied, NotClosed) as error:
        if isinstance(error, SessionDied) or isinstance(error.__cause__, SessionDied):
            _restart()
        raise


async def _execute_runs(
    mediator: Mediator, settings: MediatorSettings, jobs: JobSettings, resources: AsyncExitStack
) -> None:
    from spark_jobs.session import SessionDied, SparkUnavailable

    name = f"{socket.gethostname()}-{os.getpid()}-{uuid4().hex[:8]}"
    stopping = stopped_by_signal()
    try:
        session = await _session(jobs.spark_options(), resources)
        instance = _worker(name, mediator, session, settings, jobs)
        await mediator.workers.heartbeat(name, None)
        console.print(f"Worker {name}: waiting for runs; Spark is {jobs.spark}")
        await instance.work(stopping)
    except SessionDied:
        if not stopping.is_set():
            raise
    except SparkUnavailable as error:
        await mediator.workers.heartbeat(name, str(error))
        raise


async def _session(spark: SparkOptions, resources: AsyncExitStack) -> LazySession:
    """Return a lazily opened session, which is stopped with the resources."""
    from spark_jobs.session import LazySession, check_spark, open_session

    session = LazySession(lambda: open_session(spark))
    check_spark(spark)
    if spark.remote:  # only a session shows whether it answers; no JVM starts here
        await asyncio.to_thread(session.get)

    async def stop() -> None:
        with suppress(Exception):  # any error of Py4J: the session may have died already
            await asyncio.to_thread(session.stop)

    resources.push_async_callback(stop)
    return session


def _worker(
    name: str,
    mediator: Mediator,
    session: LazySession,
    settings: MediatorSettings,
    jobs: JobSettings,
) -> Worker:
    # Kinds and readers need Spark, which has been checked only now.
    from spark_jobs.runner.worker import Worker, WorkerOptions
    from spark_jobs.sinks.classes import ClassSink
    from spark_jobs.sources.reading import read_input
    from spark_jobs.sources.tables import read_table

    options = WorkerOptions(
        name,
        jobs.directory(settings.data_dir),
        jobs.worker_lease_s,
        jobs.worker_drain_s,
        jobs.jobs_keep_hours * 3600,
    )
    sink = ClassSink(mediator.data, asyncio.get_running_loop())
    return Worker(mediator.queue, mediator.workers, session, read_input, sink, options, read_table)
