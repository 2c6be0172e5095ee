"""Settings of authentication and of limits; read from the environment, see docs/settings.md."""

from __future__ import annotations

from dataclasses import fields
from ipaddress import ip_address
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings

from app.settings.main import FROM_ENVIRONMENT, HttpSettings, MediatorSettings, MissingSetting
from mediator.access.metering import TenantLimits

__all__ = ["AccessSettings", "bearer", "is_key", "is_loopback"]


def is_key(text: str) -> bool:
    """Whether a text can be a key: printable ASCII without spaces, as a header field holds it."""
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


def _check_key(key: SecretStr) -> SecretStr:
    # An empty variable counts as unset.
    if (text := key.get_secret_value()) and not is_key(text):
        raise ValueError("it is no key: printable ASCII characters without a space are expected")
    return key


class AccessSettings(BaseSettings):
    """Settings of authentication, and the default limits of tenants."""

    model_config = FROM_ENVIRONMENT

    authentication: Literal["off", "required"] | None = Field(
        None,
        description="Whether requests need a key or a token. Unless set, they do, except if the"
        " service runs on embedded stores and listens on loopback.",
    )
    jwt_keys: str | None = Field(
        None, min_length=1, description="Location of the token issuer's public keys (JWKS)."
    )
    jwt_issuer: str | None = Field(None, min_length=1, description="The required issuer of tokens.")
    jwt_audience: str | None = Field(
        None, min_length=1, description="The required audience of tokens."
    )
    jwt_leeway_s: float = Field(
        30.0, ge=0, le=300, description="Seconds by which clocks may differ."
    )
    metrics_open: bool = Field(False, description="Whether `/metrics` needs no key.")
    key: Annotated[SecretStr, AfterValidator(_check_key)] | None = Field(
        None, description="The key that commands send to the admin API."
    )
    tenant_rate: float | None = Field(
        None, gt=0, description="Requests of one tenant per second and replica."
    )
    tenant_burst: int = Field(
        100, ge=1, le=1_000_000, description="Requests of one tenant in a burst, after a pause."
    )
    tenant_in_flight: int | None = Field(
        None, ge=1, description="Requests of one tenant in progress at the same time."
    )
    tenant_body_bytes: int | None = Field(
        None, ge=1, description="Bytes of a request body of one tenant, or of a line of an import."
    )
    tenant_query_rows: int | None = Field(
        None, ge=1, description="Records that stores may return for one query of one tenant."
    )
    tenant_query_seconds: float | None = Field(
        None, gt=0, description="Time that one query of one tenant may take."
    )
    tenant_rows_rate: float | None = Field(
        None,
        gt=0,
        description="Records per second that stores return to a replica for queries of one tenant.",
    )
    tenant_stream_seconds: float | None = Field(
        None, gt=0, description="Time of one import, export, feed or download of one tenant."
    )
    tenant_runs: int | None = Field(
        None, ge=1, description="Runs of one tenant's databases that have not ended."
    )
    tenant_objects: int | None = Field(
        None, ge=0, description="Objects that the databases of one tenant hold together."
    )
    tenant_priority: int = Field(
        100,
        ge=0,
        le=100,
        description="Priority of the requests of one tenant, and the highest of its runs, for"
        " admission control.",
    )

    @model_validator(mode="after")
    def _tokens_are_bound(self) -> AccessSettings:
        token_settings = (self.jwt_keys, self.jwt_issuer, self.jwt_audience)
        if any(token_settings) and not all(token_settings):
            raise ValueError("jwt_keys, jwt_issuer and jwt_audience go together")
        if self.jwt_keys is not None and not _is_trusted(self.jwt_keys):
            raise ValueError("jwt_keys must be a file, or an https address without a password")
        return self

    @property
    def limits(self) -> TenantLimits:
        names = [field.name for field in fields(TenantLimits)]
        return TenantLimits(**{name: getattr(self, f"tenant_{name}") for name in names})

    def required(self, http: HttpSettings, settings: MediatorSettings) -> bool:
        """Whether requests need a key or a token.

        Raises:
            MissingSetting: They need none, and other machines could send requests.
        """
        only_loopback = is_loopback(http.host) and is_loopback(http.admin_host)
        if self.authentication == "off" and not only_loopback:
            raise MissingSetting(
                "Without authentication the service listens on loopback only: set"
                " PORTOLAN_AUTHENTICATION=required and make a key by `portolan key create`, or"
                " leave PORTOLAN_HOST and PORTOLAN_ADMIN_HOST at 127.0.0.1."
            )
        if self.authentication is None:
            return not (settings.embedded and only_loopback)
        return self.authentication == "required"


def is_loopback(host: str) -> bool:
    """Whether a host is a loopback name or address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_trusted(location: str) -> bool:
    """Whether keys cannot be replaced in transit from this location."""
    parts = urlsplit(location)
    if "@" in parts.netloc:
        return False
    if parts.scheme == "http":
        return is_loopback(parts.hostname or "")
    return parts.scheme in ("https", "")


def bearer(key: SecretStr | None) -> dict[str, str]:
    """Return the Authorization field for a key; empty without one."""
    return {"Authorization": f"Bearer {key.get_secret_value()}"} if key else {}
