"""Standing queries: parameters and answers; `mediator.standing.query_parser` parses queries."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from app.api.models.common import RESULT_POSITION, Count, JsonObject, RandomId, RulePause
from app.http.validation import Parameters, ResponseModel, WholeNumber
from mediator.standing.planning import Mode

__all__ = [
    "PlanParameters",
    "ResultsParameters",
    "StandingPlan",
    "StandingQueries",
    "StandingQuery",
    "StandingQueryReport",
    "StandingResults",
]


class ResultsParameters(Parameters):
    """Which results of a standing query are requested."""

    after: str | None = Field(
        None,
        description="`after` of a page, or the id of a result; unless given, only new results.",
        pattern=RESULT_POSITION,
    )
    limit: WholeNumber = Field(100, ge=1, le=1_000, description="Results in a page at most.")
    wait: WholeNumber = Field(0, ge=0, le=30, description="Seconds to wait for the first result.")


class PlanParameters(Parameters):
    """Which plan is requested."""

    mode: Mode = Field("shared", description="Each query alone, all greedily, or the best for all.")


class StandingQuery(ResponseModel):
    """A standing query."""

    id: RandomId
    name: str
    state: Literal["building", "ready", "paused", "resuming", "stopped"]
    detail: str | None = Field(None, description="Why it was stopped.")


class StandingQueries(ResponseModel):
    """The standing queries of a database."""

    items: list[StandingQuery]


class StandingQueryReport(StandingQuery):
    """A standing query as it was sent, its state, and its lag."""

    query: JsonObject
    lag: Count = Field(description="Tuples of its relations that it has not processed.")
    max_lag: Count = Field(description="The lag up to which it is not late.")
    paused: RulePause | None


class StandingResult(ResponseModel):
    """A result: a tuple of each relation."""

    id: int
    time_s: float = Field(description="The latest time of its tuples.")
    tuples: dict[str, JsonObject] = Field(description="Attributes, by the alias of the relation.")


class StandingResults(ResponseModel):
    """A page of results."""

    results: list[StandingResult]
    after: str = Field(description="`after` of the next page.", pattern=RESULT_POSITION)


class PlannedHop(ResponseModel):
    """A step of probe orders; costs are in tuples per second."""

    order: str
    to: str
    cost: float = Field(description="As predicted.")
    measured: float | None = Field(description="Null if it is not executed, or not measured yet.")
    joins: list[str] = Field(description="The joins that it is executed for.")


class PlannedStore(ResponseModel):
    """A store, and the queries that share it."""

    store: str
    tuples: float = Field(description="As predicted.")
    kept: int | None = Field(description="Null if the service has no such store.")
    queries: list[RandomId]


class PlannedQueries(ResponseModel):
    """A plan of one query, or of all."""

    queries: list[RandomId]
    cost: float
    hops: list[PlannedHop]
    stores: list[PlannedStore]


class StandingPlan(ResponseModel):
    """Plans by the current measurements."""

    mode: Literal["individual", "greedy", "shared"]
    cost: float = Field(description="Tuples sent per second.")
    gap: float = Field(description="The share of the cost that a better plan could save.")
    is_greedy: bool = Field(description="Whether it was chosen greedily, without a solver.")
    stored_tuples: float
    plans: list[PlannedQueries]
    names: dict[str, str] = Field(description="Names of queries, by id.")
    rates: dict[str, float] = Field(description="Measured tuples per second of each stream.")
    running: dict[str, Any] | None = Field(
        description="The plan that the service executes, with its measured cost."
    )
