"""The HTTP services that flows may invoke: hosts listed in settings, at checked addresses."""

from __future__ import annotations

import re
import socket
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final, NamedTuple, TypeAlias

from mediator.base.errors import Invalid, Location, Unavailable

__all__ = ["SETTING", "HttpHosts", "Origin", "Resolve", "parse_host", "parse_origin"]

SETTING: Final = "PORTOLAN_FLOW_HOSTS"
PRIVATE_SETTING: Final = "PORTOLAN_FLOW_PRIVATE_ADDRESSES"

_PORTS: Final = {"http": 80, "https": 443}
_HOST: Final = re.compile(
    r"(?P<host>(?!.*\.\.)[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])"
    r"(?::(?P<port>[1-9][0-9]{0,4}))?"
)
_MAX_PORT: Final = 65_535
_NAT64: Final = IPv6Network("64:ff9b::/96")

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host; raises `OSError`."""

_Address: TypeAlias = IPv4Address | IPv6Address


class Origin(NamedTuple):
    """Scheme, host and port of a URL; an IPv6 address is in brackets."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        is_default = self.port == _PORTS[self.scheme]
        return self.host if is_default else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"


def parse_host(text: str) -> tuple[str, int | None]:
    """Read `host` or `host:port`; raises `ValueError`."""
    match = _HOST.fullmatch(text.lower())
    if match is None or int(match["port"] or 1) > _MAX_PORT:
        raise ValueError(f"{text!r} is not a host, or a host with a port.")
    return match["host"], int(match["port"]) if match["port"] else None


def parse_origin(text: str) -> Origin | None:
    """Read the origin of an http or https URL; None: invalid, or with a user or password."""
    scheme, _, authority = text.partition("://")
    if scheme not in _PORTS:
        return None
    try:
        host, port = parse_host(authority)
    except ValueError:
        return None
    return Origin(scheme, host, port or _PORTS[scheme])


async def resolve(host: str, port: int) -> list[str]:
    """Resolve a host by the system's resolver."""
    infos = await get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(info[4][0]) for info in infos]


@dataclass(frozen=True, slots=True)
class HttpHosts:
    """The hosts that flows may invoke.

    Attributes:
        hosts: Each with its port; None: with the default port of the scheme.
        private: Whether their addresses may be private or local.
    """

    hosts: frozenset[tuple[str, int | None]] = frozenset()
    private: bool = False
    resolve: Resolve = resolve

    @classmethod
    def of(cls, hosts: Iterable[str], *, private: bool, resolve: Resolve = resolve) -> HttpHosts:
        """Parse hosts; raises `ValueError` for an invalid one."""
        return cls(frozenset(map(parse_host, hosts)), private, resolve)

    def check(self, origin: Origin, pointer: str | None = None) -> None:
        """Raise `Invalid`, with the URL's location if given, for a host that is not listed."""
        port = None if origin.port == _PORTS[origin.scheme] else origin.port
        if self.hosts.isdisjoint({(origin.host, origin.port), (origin.host, port)}):
            detail = f"{origin.authority} is not listed in the setting {SETTING}"
            locations = [] if pointer is None else [Location(pointer, detail)]
            raise Invalid(f"{detail}.", locations=locations)

    async def addresses(self, origin: Origin) -> list[str]:
        """Return the addresses of a permitted host, to which alone connections go.

        Raises:
            Invalid: The host, or one of its addresses, may not be invoked.
            Unavailable: The host has no address now.
        """
        self.check(origin)
        try:
            addresses = await self.resolve(origin.host.strip("[]"), origin.port)
        except OSError as error:
            detail = f"The name {origin.host} is not resolved."
            raise Unavailable(detail, system=origin.host) from error
        for address in addresses:
            if not _is_permitted(ip_address(address), private=self.private):
                detail = f"{origin.host} has an address that is not public"
                raise Invalid(f"{detail}; {PRIVATE_SETTING} is to allow private ones.")
        return list(dict.fromkeys(addresses))


def _is_permitted(address: _Address, *, private: bool) -> bool:
    """Whether an address is public, or a permitted other address of a single machine.

    Link-local addresses never are: clouds serve a machine's credentials at one of them.
    """
    address = _embedded(address)
    if (
        address.is_multicast
        or address.is_link_local
        or address.is_unspecified
        or (address.is_reserved and not address.is_loopback)
    ):
        return False
    return address.is_global or private


def _embedded(address: _Address) -> _Address:
    """Return the IPv4 address at which packets to an IPv6 address end, if there is one."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or address
