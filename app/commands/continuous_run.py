"""Executions of continuous queries, and of what calibrates their costs, on a session of Spark."""

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

__all__ = ["calibrated", "executed"]

_NAME: Final = "continuous queries"
_CONF: Final = {
    # A batch is small: what is divided less is done sooner.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
}
"""Settings that those of PORTOLAN_SPARK_CONF win over."""


def executed(
    plan: Plan, tuples: Iterable[Tuple], trigger_s: float, directory: Path | None
) -> Iterator[bytes]:
    """Execute a plan; go through its results."""
    if plan.physical.fragments and _url() is None:
        raise NoDatabase
    with driven_session(_options(), _NAME) as session, _directory(directory) as chosen:
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
    with driven_session(_options(), _NAME) as session, _directory(None) as directory:
        return fit(measure(session, url, directory, say, quick=quick))


def _url() -> str | None:
    url = JobSettings().continuous_url
    return None if url is None else url.get_secret_value()


def _options() -> SparkOptions:
    options = JobSettings().spark_options()
    return replace(options, conf={**_CONF, **options.conf})


@contextmanager
def _directory(given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="portolan-continuous-") as directory:
        yield Path(directory)
