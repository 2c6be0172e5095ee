"""Message flows: parameters and answers. `mediator.flows.parser` has the flow itself."""

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

    after: WholeNumber = Field(0, ge=0, description="`next` of the page before.")
    limit: WholeNumber = Field(100, ge=1, le=1_000, description="Dead letters in a page at most.")


class ReplayParameters(Parameters):
    """Which dead letters are replayed."""

    expired: Literal["true", "false"] = Field(
        "false",
        description="Replay also those that arrived so long ago that what they have written may be"
        " written again.",
    )


class EndedParameters(Parameters):
    """Which messages that have ended are requested."""

    after: str | None = Field(
        None,
        description="`position` of the page before; all that are known unless given.",
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
        description="Why it is not executed, while the schema of the database does not allow it.",
    )


class MessageFlows(ResponseModel):
    """The flows of a database."""

    items: list[MessageFlow]


class FlowCounts(ResponseModel):
    """What happened since the flow was created; a member is left out while it is 0."""

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
    """What messages of a partition agree on: the value of an attribute, or its case in a switch."""

    attribute: str
    by: Literal["value", "list", "range"]


class FlowLevel(ResponseModel):
    """What messages may be queued by."""

    attributes: list[FlowAttribute]
    selectivity: float | None = Field(description="1 over the values of 1,000 messages.")
    lookup_s: float


class FlowMeasurement(ResponseModel):
    """What a worker has measured, and the waiting time that follows; see message flows."""

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
    """A flow with its counts, what was measured of it, and its plans if it is executed."""

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
    """The tickets of messages, in their order."""

    tickets: list[RandomId]


class FlowError(ResponseModel):
    """Why a message failed."""

    detail: str
    errors: list[JsonObject]


class MessageState(ResponseModel):
    """What became of a message."""

    ticket: RandomId
    state: Literal["queued", "done", "failed"]
    result: Any = Field(None, description="Of one that is done.")
    error: FlowError | None = Field(None, description="Of one that has failed.")


class EndedMessages(ResponseModel):
    """Messages in the order in which they ended, and where the next page begins."""

    items: list[MessageState]
    position: str = Field(description="`after` of the next page.", pattern=RESULT_POSITION)


class DeadLetter(ResponseModel):
    """A message that failed."""

    ticket: RandomId
    message: JsonObject
    error: FlowError
    age_s: Seconds = Field(description="Since it arrived, replayed or not.")


class DeadLetters(ResponseModel):
    """A page of dead letters, oldest first."""

    items: list[DeadLetter]
    next: int | None


class Replayed(ResponseModel):
    """How many dead letters were queued again, and how many were left as they are too old."""

    replayed: Count
    expired: Count
