"""Executions of continuous queries, and of what calibrates their costs, on a session of Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from app.settings.main import JobSettings
from mediator.continuous.costs import Constants
from mediator.continuous.planning import Plan
from spark_jobs.continuous.execution import results_in
from spark_jobs.continuous.log import Tuple
from spark_jobs.continuous.running import NoDatabase, run_plan
from spark_jobs.session import SparkUnavailable, open_session

__all__ = ["calibrated", "executed"]

_CONF: Final = {
    # A batch is small: what is divided less is done sooner.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
"""Settings that those of PORTOLAN_SPARK_CONF win over."""


def executed(
    plan: Plan, tuples: Iterable[Tuple], trigger_s: float, directory: Path | None
) -> Iterator[bytes]:
    """Execute a plan; go through its results."""
    if plan.physical.fragments and _url() is None:
        raise NoDatabase
    with _session() as session, _directory(directory) as chosen:
        run_plan(session, plan, tuples, trigger_s, chosen, _url())
        yield from results_in(chosen)


def calibrated(say: Callable[[str], None], *, quick: bool) -> tuple[Constants, float]:
    """Measure; return the constants, and by how much they miss in the median.

    Raises:
        ImportError: SciPy is missing.
    """
    from spark_jobs.continuous.calibration import fit, measure

    url = _url()
    if url is None:
        raise NoDatabase
    with _session() as session, _directory(None) as directory:
        return fit(measure(session, url, directory, say, quick=quick))


def _url() -> str | None:
    url = JobSettings().continuous_url
    return None if url is None else url.get_secret_value()


@contextmanager
def _session() -> Iterator[Any]:
    options = JobSettings().spark_options()
    if options.remote:
        remedy = "set PORTOLAN_SPARK to local[*,4], or to the master of a cluster"
        raise SparkUnavailable("continuous queries need a driver of this process", remedy)
    session = open_session(replace(options, conf={**_CONF, **options.conf}))
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def _directory(given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="portolan-continuous-") as directory:
        yield Path(directory)
