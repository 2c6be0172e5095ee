"""Settings of traces and metrics."""

from __future__ import annotations

import os
from typing import Annotated, Literal, TypeAlias

from pydantic import Field
from pydantic_settings import BaseSettings

from app.settings.main import FROM_ENVIRONMENT, HTTP_URL

__all__ = ["LogFormat", "Signal", "TelemetrySettings"]

LogFormat: TypeAlias = Literal["json", "text"]
Signal: TypeAlias = Literal["metrics", "traces"]


class TelemetrySettings(BaseSettings):
    """Settings of logs, and of the export of metrics and traces."""

    model_config = FROM_ENVIRONMENT

    log_format: LogFormat | None = Field(
        None, description="`json` or `text`; unless set, text on a terminal, else JSON."
    )
    # Credentials go into OTEL_EXPORTER_OTLP_HEADERS.
    otlp_endpoint: Annotated[str, Field(pattern=HTTP_URL, max_length=2000)] | None = Field(
        None, description="Where metrics and traces are sent by OTLP over HTTP."
    )
    otlp_every_s: float = Field(
        15.0, ge=1, le=3600, description="Seconds between exports of metrics."
    )
    otlp_timeout_s: float = Field(3.0, gt=0, le=60, description="Timeout of an export, in seconds.")
    trace_ratio: float = Field(
        0.05,
        ge=0,
        le=1,
        description="Share of requests that are traced, unless their callers decide.",
    )

    def exports(self, signal: Signal) -> bool:
        """Whether a signal is exported, by our setting or by a standard variable, if not empty."""
        standard = "OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"
        return self.otlp_endpoint is not None or any(os.environ.get(name) for name in standard)

    def endpoint(self, signal: Signal) -> str | None:
        """Return the endpoint of a signal; None: that of the standard variable."""
        return f"{self.otlp_endpoint.rstrip('/')}/v1/{signal}" if self.otlp_endpoint else None
