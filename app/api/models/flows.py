"""Message flows: parameters and answers; `mediator.flows.parser` parses flows."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from app.api.models.common import RESULT_POSITION, Count, JsonObject, RandomId, RulePause, Seconds
from app.http.validation import Parameters, ResponseModel, WholeNumber

__all__ = [
    "DeadLetterParameters",
    "DeadLetters",
    "EndedMessages",
    "EndedParameters",
    "MessageFlow",
    "MessageFlowReport",
    "MessageFlows",
    "MessageState",
    "ReplayParameters",
    "Replayed",
    "Tickets",
]


class DeadLetterParameters(Parameters):
    """A page of dead letters."""

    after: WholeNumber = Field(0, ge=0, description="`next` of the previous page.")
    limit: WholeNumber = Field(100, ge=1, le=1_000, description="Dead letters in a page at most.")


class ReplayParameters(Parameters):
    """Which dead letters are replayed."""

    expired: Literal["true", "false"] = Field(
        "false",
        description="Also replay those that arrived so long ago that writes could be repeated.",
    )


class EndedParameters(Parameters):
    """Which messages that have ended are requested."""

    after: str | None = Field(
        None,
        description="`position` of the previous page; unless given, all stored messages.",
        pattern=RESULT_POSITION,
    )
    limit: WholeNumber = Field(100, ge=1, le=1_000, description="Messages in a page at most.")


class MessageFlow(ResponseModel):
    """A message flow."""

    id: RandomId
    name: str
    latency_s: Seconds
    ordered: bool
    objective: Literal["latency", "work"]
    detail: str | None = Field(
        None,
        description="Why the schema of the database does not allow its execution.",
    )


class MessageFlows(ResponseModel):
    """The flows of a database."""

    items: list[MessageFlow]


class FlowCounts(ResponseModel):
    """Counts since the creation of the flow; a count of 0 is left out."""

    batches: Count = 0
    messages: Count = 0
    lookups: Count = 0
    lookups_saved: Count = 0
    repeated_batches: Count = 0
    repeated_requests: Count = 0
    done: Count = 0
    failed: Count = 0
    late: Count = 0
    pauses: Count = 0


class FlowAttribute(ResponseModel):
    """An attribute whose value, or case in a switch, all messages of a partition share."""

    attribute: str
    by: Literal["value", "list", "range"]


class FlowLevel(ResponseModel):
    """Attributes by which messages can be queued."""

    attributes: list[FlowAttribute]
    selectivity: float | None = Field(description="1 over the values of 1,000 messages.")
    lookup_s: float


class FlowMeasurement(ResponseModel):
    """A worker's measurements, and the waiting time computed from them; see message flows."""

    constant_s: float
    linear_s: float
    rate: float | None
    selectivity: float | None
    batch: float | None = None
    wait_s: float | None
    wait_least_s: float | None = None
    wait_most_s: float | None = None
    is_valid: bool | None = None
    explanation: str | None = None
    speedup: float | None = None
    levels: list[FlowLevel]


class MessageFlowReport(MessageFlow):
    """A flow with its counts and measurements, and its plans if it is executed."""

    partitioned_by: list[FlowAttribute] | None = None
    plan: list[JsonObject] | None = None
    rewritten_plan: list[JsonObject] | None = None
    outbound_plan: list[JsonObject] | None = None
    paused: RulePause | None
    counts: FlowCounts
    partitions: Count
    queued: Count
    held: Count
    dead_letters: Count
    share_beyond_bound: float | None
    measured: FlowMeasurement | None


class Tickets(ResponseModel):
    """The tickets of messages, in order."""

    tickets: list[RandomId]


class FlowError(ResponseModel):
    """Why a message failed."""

    detail: str
    errors: list[JsonObject]


class MessageState(ResponseModel):
    """The state of a message."""

    ticket: RandomId
    state: Literal["queued", "done", "failed"]
    result: Any = Field(None, description="The result of a message that is done.")
    error: FlowError | None = Field(None, description="The error of a message that failed.")


class EndedMessages(ResponseModel):
    """Messages in the order in which they ended, and the position of the next page."""

    items: list[MessageState]
    position: str = Field(description="`after` of the next page.", pattern=RESULT_POSITION)


class DeadLetter(ResponseModel):
    """A message that failed."""

    ticket: RandomId
    message: JsonObject
    error: FlowError
    age_s: Seconds = Field(description="Time since it arrived, replayed or not.")


class DeadLetters(ResponseModel):
    """A page of dead letters, oldest first."""

    items: list[DeadLetter]
    next: int | None


class Replayed(ResponseModel):
    """Counts of the dead letters that were requeued, and of those that were too old."""

    replayed: Count
    expired: Count
