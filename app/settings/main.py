"""Settings, one class per concern, read from the environment; see docs/settings.md."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    model_validator,
)
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.settings.purge import PurgeTarget
from mediator.control.port import SystemRegistration
from mediator.flows.http_hosts import parse_host
from mediator.scaling.energy import Energy
from mediator.schema.annotations import Capability
from mediator.stores.kinds import is_store_kind, store_kinds
from mediator.stores.port import SystemConfig
from spark_jobs.session import SparkOptions

__all__ = [
    "FROM_ENVIRONMENT",
    "HTTP_URL",
    "CacheSettings",
    "HttpSettings",
    "JobSettings",
    "MediatorSettings",
    "MissingSetting",
    "SystemSettings",
]

HTTP_URL: Final = r"^https?://[^/?#@\s]+(/[^?#@\s]*)?$"
"""A URL without user and password, as it is shown and logged."""

Port = Annotated[int, Field(ge=0, le=65535)]
Timeout = Annotated[int, Field(ge=1, le=3600)]
"""In seconds."""

FROM_ENVIRONMENT: Final = SettingsConfigDict(
    env_prefix="PORTOLAN_",
    extra="ignore",
    hide_input_in_errors=True,  # an invalid input can contain a password
)


class MissingSetting(Exception):
    """A required setting is missing or unusable; the message names it, and says what to do."""


class HttpSettings(BaseSettings):
    """Settings of the service's ports."""

    model_config = FROM_ENVIRONMENT

    host: str = Field("127.0.0.1", description="Address of the data API.")
    port: Port = Field(8080, description="Port of the data API; 0 takes a free one.")
    admin_host: str = Field("127.0.0.1", description="Address of the admin API.")
    admin_port: Port = Field(8081, description="Port of the admin API; 0 takes a free one.")
    tls_certificate: Path | None = Field(
        None, description="File with the data port's certificate and chain (PEM); HTTPS then."
    )
    tls_key: Path | None = Field(None, description="File with its key (PEM, not encrypted).")
    admin_tls_certificate: Path | None = Field(
        None, description="File with the admin port's certificate and chain (PEM); HTTPS then."
    )
    admin_tls_key: Path | None = Field(None, description="File with its key (PEM, not encrypted).")
    body_limit: int = Field(8 * 2**20, gt=0, description="Largest request body, in bytes.")
    cors_origins: dict[str, list[str]] = Field(
        default_factory=dict,
        description='Origins that browsers may call from, by database: {"news": ["https://…"]}.',
    )
    compression: bool = Field(
        True,
        description="Compress responses of 1,024 bytes or more for clients that accept it.",
    )
    drain_s: float = Field(
        5.0,
        ge=0,
        le=600,
        description="Seconds after SIGTERM in which new connections are still answered, so that"
        " load balancers notice.",
    )
    head_timeout_s: Timeout = Field(
        20,
        description="Seconds in which the head of a request must be complete; a connection that has"
        " sent nothing is closed after the same time.",
    )
    body_timeout_s: Timeout = Field(
        30,
        description="Seconds in which 4,096 bytes of a request's body, or its end, must arrive.",
    )
    response_timeout_s: Timeout = Field(
        60,
        description="Seconds after which a client that reads nothing of its response is dropped.",
    )
    max_connections: PositiveInt = Field(
        4096,
        description="Connections of a port at the same time, and at most half of the files that the"
        " process may open.",
    )
    max_connections_per_peer: PositiveInt | None = Field(
        None,
        description="Connections of a port with one address at the same time; behind a proxy, all"
        " of them come from one address.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The lowest level of logged messages."
    )

    @property
    def data_url(self) -> str:
        """URL of the data API, from these settings."""
        return f"{_scheme(self.tls_certificate)}://{self.host}:{self.port}"

    @property
    def admin_url(self) -> str:
        return f"{_scheme(self.admin_tls_certificate)}://{self.admin_host}:{self.admin_port}"


def _scheme(certificate: Path | None) -> str:
    return "http" if certificate is None else "https"


def _flow_host(host: str) -> str:
    parse_host(host)
    return host


def _known_kind(kind: str) -> str:
    if not is_store_kind(kind):
        raise ValueError(f"one of {', '.join(store_kinds())} is expected")
    return kind


class SystemSettings(BaseModel):
    """One system, as an element of `PORTOLAN_SYSTEMS`."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
    kind: Annotated[str, AfterValidator(_known_kind)]
    url: SecretStr
    durability: Literal["full", "second"] | None = None
    deadline_s: Annotated[float, Field(gt=0, le=60)] = 2.0
    pool_size: Annotated[int, Field(ge=1, le=1000)] = 16
    namespace: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")] = "portolan"
    partitions: Annotated[int, Field(ge=1, le=1024)] = 4
    declared: list[Capability] = Field(default_factory=list)

    def registration(self) -> SystemRegistration:
        config = SystemConfig(
            url=self.url.get_secret_value(),
            **self.model_dump(exclude={"url", "declared"}),
        )
        return SystemRegistration(config, tuple(c.value for c in self.declared))


class MediatorSettings(BaseSettings):
    """Settings of the mediator."""

    model_config = FROM_ENVIRONMENT

    catalogue_url: SecretStr | None = Field(
        None,
        description="PostgreSQL that holds schemas, placements and the log of writes across"
        " systems.",
    )
    catalogue_migrate: Literal["auto", "off"] = Field(
        "auto",
        description="Whether the tables of the catalogue are upgraded at the start; `off`: by"
        " `portolan catalogue upgrade` alone.",
    )
    coordination_url: SecretStr | None = Field(
        None,
        description="Redis that holds the change feed, and through which replicas share metrics;"
        " without it there is no feed.",
    )
    relays: Literal["process", "here"] = Field(
        "process",
        description="Where changes are relayed to the feed and to views: in a separate `process`,"
        " so that requests do not wait for it, or `here`, in the serving process.",
    )
    feed_changes: int = Field(
        1_000_000,
        ge=1_000,
        description="Changes that the feed keeps of each of a database's four partitions.",
    )
    feed_hours: float = Field(24.0, gt=0, description="Hours for which the feed keeps changes.")
    systems: list[SystemSettings] = Field(
        default_factory=list,
        description="Systems that are registered at the start, as a JSON list.",
    )
    systems_file: Path | None = Field(
        None,
        description="A file with additional systems as a JSON list, which is reread when it"
        " changes, and at SIGHUP.",
    )
    proposal_margin: float = Field(
        0.2,
        ge=0,
        description="The margin by which another system must score higher to be proposed.",
    )
    proposal_dwell_s: float = Field(
        60.0, ge=0, description="Seconds for which it must do so before it is proposed."
    )
    query_rows: int = Field(
        100_000, gt=0, description="Records that stores may return for one query."
    )
    query_seconds: float = Field(10.0, gt=0, description="Time that one query may take.")
    query_bytes: int = Field(
        2**28, gt=0, description="Approximate bytes of the objects that one query may read."
    )
    flow_hosts: list[Annotated[str, AfterValidator(_flow_host)]] = Field(
        default_factory=list,
        description="Hosts whose HTTP services message flows may invoke, each as `host` or"
        " `host:port`.",
    )
    flow_private_addresses: bool = Field(
        False,
        description="Whether these hosts may have private addresses, or those of this machine.",
    )
    energy: Energy | None = Field(
        None,
        description="Powers in watts, for the energy-delay product in scaling advice, as JSON:"
        ' {"service": {"idle_w": 20, "peak_w": 60, "edp_goal_js": 0.001}, "systems": {"redis":'
        ' {"idle_w": 15, "peak_w": 45}}}.',
    )
    embedded: bool = Field(False, description="Run on embedded stores.")
    data_dir: Path = Field(Path(".portolan"), description="Where embedded stores keep their data.")
    durability: Literal["full", "second"] = Field(
        "second", description="Durability of the embedded stores."
    )

    @property
    def required_catalogue_url(self) -> str:
        """The address of the catalogue; raises `MissingSetting` if there is none."""
        if self.catalogue_url is None:
            raise MissingSetting(
                "There is no catalogue: set PORTOLAN_CATALOGUE_URL to a PostgreSQL database,"
                " or use embedded stores (--embedded, PORTOLAN_EMBEDDED)."
            )
        return self.catalogue_url.get_secret_value()


class CacheSettings(BaseSettings):
    """Settings of the cache sketch, which keeps HTTP caches coherent."""

    model_config = FROM_ENVIRONMENT

    sketch: Literal["auto", "redis", "memory", "off"] = Field(
        "auto",
        description="Where the sketch is stored: `redis`; `memory`, for a single replica; `off`:"
        " nothing is cached. `auto`: on Redis if there is one, else off.",
    )
    sketch_url: SecretStr | None = Field(
        None, description="Redis that holds the sketch; the coordination Redis unless set."
    )
    sketch_bits: int = Field(
        116_800, ge=64, le=2**27, multiple_of=8, description="Size of a class's filter, in bits."
    )
    sketch_hashes: int = Field(4, ge=1, le=32, description="Bits of the filter that a key sets.")
    sketch_valid_s: float = Field(
        60.0, gt=0, le=86_400, description="Seconds for which a client may use a filter."
    )
    cache_max_ttl_s: float = Field(
        600.0, gt=0, le=86_400, description="Longest TTL of a cached answer, in seconds."
    )
    cache_margin_s: float = Field(
        5.0,
        ge=3,
        description="Upper bound in seconds of the time from a call of the sketch to the receipt of"
        " the answer by the last cache.",
    )
    cache_layers: int = Field(
        1, ge=1, le=8, description="Shared caches in a row that do not send the age of a copy."
    )
    cache_queries: int = Field(
        10_000,
        ge=0,
        le=100_000,
        description="Queries of a class whose results may be cached at the same time; 0: none.",
    )
    cache_estimator: Literal["static", "cate", "learner"] = Field(
        "static",
        description="How TTLs of cached answers are chosen: `static`, the longest that the class"
        " allows; `cate`, by the rates of misses and writes; `learner`, by cost.",
    )
    cache_false_positives: float = Field(
        0.1,
        gt=0,
        le=1,
        description="TTLs become shorter while the false positive rate of a class's filter is"
        " higher.",
    )
    cache_invalidations_per_s: PositiveFloat | None = Field(
        None,
        description="TTLs become shorter while more copies of a class are invalidated per second.",
    )
    purge: list[PurgeTarget] = Field(
        default_factory=list, description="Caches to purge, as a JSON list."
    )
    purge_repeat_s: PositiveFloat = Field(
        30.0,
        description="Longest time in seconds that a cache takes to fetch an answer; after it, a"
        " purge is repeated.",
    )
    purge_first: list[str] = Field(
        default_factory=list,
        description="Classes, as `database/class`, whose writes wait for purges.",
    )
    purge_first_s: float = Field(
        1.0, gt=0, le=60, description="Seconds that such a write waits for purges at most."
    )
    probe_caches: list[Annotated[str, Field(pattern=HTTP_URL, max_length=2000)]] = Field(
        default_factory=list,
        description="URLs of the data API through caches, as a JSON list: the only ones that"
        " staleness probes may read.",
    )
    write_lease_s: PositiveFloat = Field(
        30.0,
        description="Seconds after which an unfinished write is fenced; four fifths of it must be"
        " more than any system takes to answer.",
    )

    @model_validator(mode="after")
    def _margin_covers_layers(self) -> CacheSettings:
        minimum = 2 * self.cache_layers + 1
        if self.cache_margin_s < minimum:
            raise ValueError(f"cache_margin_s must be {minimum} at least for these cache_layers")
        return self


class JobSettings(BaseSettings):
    """Settings of analytic jobs."""

    model_config = FROM_ENVIRONMENT

    spark: str = Field(
        "local[*,4]",
        min_length=1,
        description="Where Spark runs: `local[cores,tries]`, the master of a cluster, or"
        " `sc://host:port` for Spark Connect.",
    )
    spark_conf: dict[str, str] = Field(
        default_factory=dict, description="Settings of Spark, as a JSON object."
    )
    gpu: Literal["auto", "never", "always"] = Field(
        "auto",
        description="Whether private linkage uses a GPU of the worker's machine: if there is one"
        " (`auto`), `never`, or `always`: without a GPU the worker then ends. Only if Spark runs on"
        " that machine.",
    )
    jobs_dir: Path | None = Field(
        None,
        description="Directory of finished stages and results of runs, the same for every replica"
        " and worker. `jobs` in the data directory unless set.",
    )
    jobs_keep_hours: float = Field(
        168.0, gt=0, description="Hours for which a run is kept after its end."
    )
    worker_lease_s: float = Field(
        15.0,
        ge=3,
        le=3600,
        description="Seconds without a heartbeat after which a worker's run is given to another.",
    )
    worker_drain_s: float = Field(
        20.0,
        ge=0,
        le=86_400,
        description="Seconds that a stopping worker gives its current run; then the run is given"
        " back, for another worker to continue.",
    )

    continuous_url: SecretStr | None = Field(
        None,
        description="The PostgreSQL database that executes fragments of continuous queries, for"
        " `portolan continuous`.",
    )

    def directory(self, data_dir: Path) -> Path:
        return (self.jobs_dir or data_dir / "jobs").resolve()

    def spark_options(self) -> SparkOptions:
        return SparkOptions(self.spark, self.spark_conf, self.gpu)
