"""Execution of continuous queries, and calibration of their costs, in a Spark session."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from app.settings.main import JobSettings
from mediator.continuous.costs import Constants
from mediator.continuous.planning import Plan
from spark_jobs.continuous.execution import results_in
from spark_jobs.continuous.log import Tuple
from spark_jobs.continuous.running import NoDatabase, run_plan
from spark_jobs.session import SparkOptions, driven_session

__all__ = ["calibrate_costs", "execute_plan"]

_NAME: Final = "continuous queries"
_CONF: Final = {
    # A batch is small: few partitions finish sooner.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
}
"""Settings that PORTOLAN_SPARK_CONF overrides."""


def execute_plan(
    plan: Plan, tuples: Iterable[Tuple], trigger_s: float, directory: Path | None
) -> Iterator[bytes]:
    """Execute a plan and yield its results."""
    if plan.physical.fragments and _url() is None:
        raise NoDatabase
    with driven_session(_options(), _NAME) as session, _directory(directory) as log_directory:
        run_plan(session, plan, tuples, trigger_s, log_directory, _url())
        yield from results_in(log_directory)


def calibrate_costs(notify: Callable[[str], None], *, quick: bool) -> tuple[Constants, float]:
    """Measure; return the constants and the median of their relative error.

    Raises:
        ImportError: SciPy is missing.
    """
    from spark_jobs.continuous.calibration import fit, measure

    url = _url()
    if url is None:
        raise NoDatabase
    with driven_session(_options(), _NAME) as session, _directory(None) as directory:
        return fit(measure(session, url, directory, notify, quick=quick))


def _url() -> str | None:
    url = JobSettings().continuous_url
    return None if url is None else url.get_secret_value()


def _options() -> SparkOptions:
    options = JobSettings().spark_options()
    return replace(options, conf={**_CONF, **options.conf})


@contextmanager
def _directory(path: Path | None) -> Iterator[Path]:
    if path is not None:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="portolan-continuous-") as scratch:
        yield Path(scratch)
