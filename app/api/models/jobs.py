"""Jobs and their runs: parameters and answers; `spark_jobs.runner.job` parses jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from app.api.models.common import Count, Cursor, Seconds
from app.http.validation import Parameters, ResponseModel, WholeNumber

__all__ = [
    "ResultParameters",
    "Run",
    "RunListParameters",
    "RunRows",
    "Runs",
    "SubmissionParameters",
]

_AFTER = "The cursor of the previous page."


class SubmissionParameters(Parameters):
    """Options of a submission."""

    dry_run: Literal["true", "false"] = Field("false", description="End with the forecast.")


class RunListParameters(Parameters):
    """A page of runs."""

    after: str | None = Field(None, description=_AFTER)
    limit: WholeNumber = Field(20, ge=1, le=100, description="Runs in a page at most.")


class ResultParameters(Parameters):
    """A page of a result."""

    after: str | None = Field(None, description=_AFTER)
    limit: WholeNumber = Field(100, ge=1, le=1_000, description="Rows in a page at most.")


class RunStage(ResponseModel):
    """The progress of a stage of a run."""

    name: str
    state: Literal["waiting", "running", "done"]
    done: Count
    total: Count
    rows: Count
    seconds: Seconds


class HeaviestBlock(ResponseModel):
    """A block of records that are compared with one another."""

    name: str
    records: Count
    pairs: Count


class Forecast(ResponseModel):
    """What a run is expected to cost."""

    rows: dict[str, Count]
    pairs: Count
    memory_bytes: Count
    heaviest: list[HeaviestBlock]
    time_s: Seconds
    notes: list[str]


class Run(ResponseModel):
    """A run of a job; members after `ended` are absent in lists, and while they are unknown."""

    id: str
    kind: str
    state: Literal["queued", "forecasting", "running", "done", "failed", "stopped", "cancelled"]
    dry_run: bool
    attempt: Count
    cancelling: bool
    held: bool
    created: datetime
    ended: datetime | None
    stages: list[RunStage] = Field([])
    counters: dict[str, Count] = Field({})
    elapsed_s: Seconds | None = None
    eta_s: float | None = None
    log: list[str] = Field([])
    forecast: Forecast | None = None
    reasons: list[str] = Field([])
    rows: Count | None = None
    reports: dict[str, Any] = Field({})
    job: dict[str, Any] = Field({})


class Runs(ResponseModel):
    """A page of runs, newest first."""

    items: list[Run]
    next: Cursor


class RunRows(ResponseModel):
    """A page of a result."""

    items: list[dict[str, Any]]
    next: Cursor
