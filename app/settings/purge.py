"""Caches to purge, as elements of `PORTOLAN_PURGE`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, SecretStr, model_validator

__all__ = ["PurgeRequest", "PurgeTarget"]


class PurgeRequest(BaseModel):
    """The request that purges tags of a cache, see `sketch.purging.TagApi`."""

    model_config = ConfigDict(extra="forbid")

    method: Literal["POST", "PURGE", "PUT", "DELETE"] = "PURGE"
    headers: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")], str] = {}
    body: JsonValue = None
    separator: Literal[" ", ",", ", "] = " "
    max_tags: Annotated[int, Field(ge=1, le=10_000)] = 200


class PurgeTarget(BaseModel):
    """A cache to purge, as an element of `PORTOLAN_PURGE`."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")]
    kind: Literal["varnish", "nginx", "fastly", "cloudflare", "tags"]
    at: Annotated[str, Field(min_length=1, max_length=2000)]
    token: SecretStr
    request: PurgeRequest | None = None

    @model_validator(mode="after")
    def _check_request(self) -> Self:
        if (self.kind == "tags") is (self.request is None):
            raise ValueError("A request is expected for caches of the kind tags, and for no other.")
        return self
