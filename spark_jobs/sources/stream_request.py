"""The options of a stream's data source, and the environment of its processes."""

from __future__ import annotations

import os
from typing import Any, Final, TypeAlias

from pydantic import BaseModel, Field, ValidationError

from spark_jobs.runner.port import InputUnfit

__all__ = ["COORDINATION", "Offset", "StreamRequest", "environment"]

COORDINATION: Final = "PORTOLAN_COORDINATION_URL"
"""The environment variable with the coordination Redis's address for a task."""

Offset: TypeAlias = dict[str, Any]
"""An offset as JSON, which Spark stores."""


class StreamRequest(BaseModel):
    """The options of the data source."""

    database: str
    stream: str | None = None
    class_name: str | None = Field(None, alias="class")
    partitions: int = Field(4, ge=1, le=10_000)
    max_per_trigger: int | None = Field(None, alias="maxpertrigger", ge=1)
    starting_at: str = Field("earliest", alias="startingat")
    fail_on_loss: bool = Field(default=True, alias="failonloss")
    consumer: str | None = Field(None, min_length=1, max_length=100)

    @classmethod
    def of(cls, options: dict[str, str]) -> StreamRequest:
        """Parse options with lower-case names; raises `InputUnfit`."""
        try:
            request = cls.model_validate(options)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise InputUnfit(f"The option {first['loc'][0]}: {first['msg']}.") from error
        if (request.stream is None) is (request.class_name is None):
            raise InputUnfit("One of the options stream and class is required.")
        return request

    @property
    def name(self) -> str:
        return self.stream or self.class_name or ""


def environment(name: str) -> str:
    """Return an environment variable; raises `InputUnfit` if it is not set."""
    if name not in os.environ:
        raise InputUnfit(f"{name} is not in the environment of Spark's Python processes.")
    return os.environ[name]
