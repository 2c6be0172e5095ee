"""Serves the data API and the admin API on their two ports until a signal ends the process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import uvicorn

from app.http.connections import Connections, PortLimits
from app.http.uvicorn_protocol import protocol_of
from app.service.container import Container, build, on_embedded
from app.service.draining import Signals, drain, stop_accepting
from app.service.interpreter import favour_the_event_loop, spare_the_collector
from app.service.interruption import closing, interruptible
from app.service.tls import Certificate, certificates
from app.settings.access import AccessSettings
from app.settings.main import CacheSettings, HttpSettings, MediatorSettings
from mediator.base.errors import Unavailable
from mediator.base.periodic_tasks import PeriodicTask, Scheduler
from mediator.embedded.fleet import EmbeddedFleet
from mediator.embedded.port import EmbeddedStartError, Kind, ServerUnavailable

__all__ = ["Addresses", "Serving", "listening", "make_server", "on_stores", "serving"]

log = logging.getLogger("portolan.serve")

REVIVE_INTERVAL_S = 1.0
"""Seconds between checks that the embedded stores run."""

FINISHED_WITHIN_S = 10
"""Seconds in which requests in progress must finish once no new ones are accepted."""

IDLE_TIMEOUT_S = 75
"""Seconds that an idle connection is kept: longer than proxies keep it (nginx: 60), so that they
close it, and never we while a request is on its way."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """The URLs of both APIs, without a path."""

    data: str
    admin: str


@dataclass(frozen=True, slots=True)
class Serving:
    """A running service.

    Attributes:
        missing: Embedded stores that this machine cannot run, with the reasons.
        ended: Set by SIGTERM or SIGINT.
    """

    addresses: Addresses
    container: Container
    missing: tuple[ServerUnavailable, ...]
    ended: asyncio.Event


@contextlib.asynccontextmanager
async def serving(
    http: HttpSettings,
    settings: MediatorSettings,
    caching: CacheSettings | None = None,
    access: AccessSettings | None = None,
) -> AsyncIterator[Serving]:
    """Run the service while the block runs; requests in progress are finished at its end.

    Without `caching` there is no sketch, and nothing is cached. Without `access` requests are not
    authenticated, and the service listens on loopback only.

    Raises:
        MissingSetting: A setting is missing, or would allow access without authentication.
        MediatorError: The catalogue does not answer.
        OSError: A port is taken.
        DataDirectoryBusy, EmbeddedStartError: The embedded stores cannot run.
        Interrupted: SIGTERM or SIGINT came before the service on embedded stores answered.
        NotClosed: A system did not close in time; raised after everything else has ended.
    """
    logging.getLogger("portolan").setLevel(http.log_level.upper())
    access_settings = access or AccessSettings.model_construct(authentication="off")
    enforced_access = access if access_settings.required(http, settings) else None
    tls = certificates(http)
    for certificate in tls.values():
        certificate.check()
    # Listen first: a second service on the same ports ends before it touches any store.
    with (
        listening(http.host, http.port) as data,
        listening(http.admin_host, http.admin_port) as admin,
    ):
        async with on_stores(settings) as (ready, missing):
            container = await build(http, ready, caching, enforced_access)
            spare_the_collector()
            favour_the_event_loop()
            addresses = Addresses(
                _address(data, tls.get("data")), _address(admin, tls.get("admin"))
            )
            async with (
                closing(container.stop),
                _serving_ports(container, data, admin, tls, http) as ended,
            ):
                yield Serving(addresses, container, missing, ended)


@contextlib.asynccontextmanager
async def on_stores(
    settings: MediatorSettings,
) -> AsyncIterator[tuple[MediatorSettings, tuple[ServerUnavailable, ...]]]:
    """Run the embedded stores while the block runs, if the settings say so.

    Yields:
        The settings with the stores, and the stores that this machine cannot run.

    Raises:
        DataDirectoryBusy, EmbeddedStartError: They cannot run.
        ServerUnavailable: This machine cannot run Redis or PostgreSQL, which the service needs.
        Interrupted: SIGTERM or SIGINT came, and the block has no handlers for them.
    """
    if not settings.embedded:
        yield settings, ()
        return
    fleet = EmbeddedFleet(settings.data_dir, settings.durability)
    signals = Signals()
    signals.listen()
    async with interruptible(signals.ended):
        try:
            state = await asyncio.to_thread(fleet.start)
            _check_required(state.unavailable)
            async with _reviving(fleet):
                yield on_embedded(settings, state.endpoints), state.unavailable
        finally:
            await asyncio.to_thread(fleet.stop)


def _check_required(unavailable: Sequence[ServerUnavailable]) -> None:
    """Raise `ServerUnavailable` if Redis or PostgreSQL is missing; MongoDB is optional."""
    for missing in unavailable:
        if missing.kind != "mongodb":
            raise missing


@contextlib.asynccontextmanager
async def _reviving(fleet: EmbeddedFleet) -> AsyncIterator[None]:
    """Restart servers that exit while the block runs, each independently of the others."""
    revival = Scheduler(
        [
            PeriodicTask(
                f"reviving embedded {kind}", REVIVE_INTERVAL_S, partial(_revive, fleet, kind)
            )
            for kind in fleet.endpoints
        ]
    )
    revival.start()
    try:
        yield
    finally:
        await revival.stop()


async def _revive(fleet: EmbeddedFleet, kind: Kind) -> None:
    try:
        was_restarted = await asyncio.to_thread(fleet.revive, kind)
    except EmbeddedStartError as error:
        raise Unavailable(str(error), system=error.kind) from error
    if was_restarted:
        log.warning("The embedded %s server had died and was started again.", kind)


@contextlib.asynccontextmanager
async def _serving_ports(
    container: Container,
    data: socket.socket,
    admin: socket.socket,
    tls: Mapping[str, Certificate],
    http: HttpSettings,
) -> AsyncIterator[asyncio.Event]:
    signals = Signals()
    signals.listen()
    reread_tasks: set[asyncio.Task[None]] = set()

    def reread() -> None:
        reread_tasks.add(task := asyncio.create_task(container.reread()))
        task.add_done_callback(reread_tasks.discard)

    if container.systems_file is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reread)
    ports = [Connections(_limits(http)) for _ in range(2)]
    serving_data = make_server(container.data, ports[0], tls.get("data"))
    serving_admin = make_server(container.admin, ports[1], tls.get("admin"))
    periodic_tasks = [certificate.periodic_task() for certificate in tls.values()]
    scheduler = Scheduler([*periodic_tasks, *(port.periodic_task() for port in ports)])
    scheduler.start()
    data_task = asyncio.create_task(serving_data.serve([data]))
    admin_task = asyncio.create_task(serving_admin.serve([admin]))
    try:
        yield signals.ended
    finally:
        if signals.drain:
            await drain(serving_data, container.context.lifecycle, http.drain_s, signals.hurried)
            await stop_accepting(data)
        # Before the server exits: it waits for every response, also for endless ones.
        container.end_streams()
        serving_data.should_exit = True
        await data_task
        # Health checks are answered to the end: otherwise the process would seem to have died.
        serving_admin.should_exit = True
        await admin_task
        await scheduler.stop()


class _Server(uvicorn.Server):
    """A server without signal handlers: two servers, and then the stores, must be stopped."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _limits(http: HttpSettings) -> PortLimits:
    file_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    available = http.max_connections if file_limit == resource.RLIM_INFINITY else file_limit // 2
    return PortLimits(
        http.head_timeout_s,
        http.body_timeout_s,
        http.response_timeout_s,
        min(http.max_connections, available),  # stores also need files
        http.max_connections_per_peer,
        IDLE_TIMEOUT_S,
    )


def make_server(
    app: object, port: Connections, certificate: Certificate | None = None
) -> uvicorn.Server:
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]  # uvicorn's own ASGI types are stricter than the protocol
        log_config=None,
        access_log=False,
        interface="asgi3",  # `traced` does not return a coroutine function
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        http=protocol_of(port),
        ws="none",
        timeout_graceful_shutdown=FINISHED_WITHIN_S,
        ssl_context_factory=None
        if certificate is None
        else (lambda _config, _default: certificate.context),
    )
    return _Server(config)


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Listen at an address while the block runs.

    Raises:
        OSError: The port is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, backlog=2048) as listener:
        # Connections inherit it. asyncio does not set it for a listener without a protocol number;
        # a body then waits for the acknowledgement of its head, which clients delay by 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield listener


def _address(listener: socket.socket, certificate: Certificate | None) -> str:
    host, port = listener.getsockname()[:2]
    scheme = "http" if certificate is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
