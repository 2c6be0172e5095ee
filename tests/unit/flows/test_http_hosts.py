"""Which hosts, and which of their addresses, flows can invoke."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mediator.base.errors import Invalid, Unavailable
from mediator.flows.http_hosts import HttpHosts, Origin, parse_host, parse_origin

HOSTS = ("credit.example", "stock.example:8443")
PUBLIC = ("93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "64:ff9b::5db8:d822")
PRIVATE = ("10.0.0.1", "172.16.0.1", "192.168.1.1", "127.0.0.1", "::1", "fd00::1", "100.64.0.1")
PRIVATE_IN_DISGUISE = ("::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::")
FORBIDDEN = (
    "169.254.169.254",
    "fe80::1",
    "fe80::1%1",
    "::ffff:169.254.169.254",
    "224.0.0.1",
    "ff02::1",
    "240.0.0.1",
    "255.255.255.255",
    "0.0.0.0",
    "::",
)


def hosts(*addresses: str, private: bool = False) -> HttpHosts:
    async def resolve(host: str, port: int) -> Sequence[str]:
        if not addresses:
            raise OSError("not known")
        return addresses

    return HttpHosts.of(HOSTS, private=private, resolve=resolve)


CREDIT = Origin("https", "credit.example", 443)


@pytest.mark.parametrize(
    ("url", "is_allowed"),
    [
        ("https://credit.example", True),
        ("http://credit.example:80", True),
        ("https://CREDIT.example:443", True),
        ("https://credit.example:8443", False),
        ("http://stock.example:8443", True),
        ("https://stock.example", False),
        ("https://credit.example.org", False),
        ("https://a.credit.example", False),
    ],
)
def test_only_listed_hosts_are_invoked(url: str, is_allowed: bool) -> None:
    origin = parse_origin(url.lower())
    assert origin is not None
    if is_allowed:
        hosts().check(origin)
        return
    with pytest.raises(Invalid, match="PORTOLAN_FLOW_HOSTS") as error:
        hosts().check(origin, "/plan/1/http/url")
    assert error.value.locations[0].pointer == "/plan/1/http/url"


@pytest.mark.parametrize("address", PUBLIC)
async def test_public_addresses_are_connected_to(address: str) -> None:
    assert await hosts(address, address).addresses(CREDIT) == [address]


@pytest.mark.parametrize("address", [*PRIVATE, *PRIVATE_IN_DISGUISE])
async def test_private_addresses_need_a_setting(address: str) -> None:
    with pytest.raises(Invalid, match="PORTOLAN_FLOW_PRIVATE_ADDRESSES"):
        await hosts(PUBLIC[0], address).addresses(CREDIT)
    assert await hosts(address, private=True).addresses(CREDIT) == [address]


@pytest.mark.parametrize("address", FORBIDDEN)
@pytest.mark.parametrize("private", [True, False])
async def test_no_setting_allows_other_addresses(address: str, private: bool) -> None:
    with pytest.raises(Invalid):
        await hosts(PUBLIC[0], address, private=private).addresses(CREDIT)


async def test_an_unresolved_name_is_transient() -> None:
    with pytest.raises(Unavailable):
        await hosts().addresses(CREDIT)


@pytest.mark.parametrize("text", ["", "a b", "a/b", "http://a", "a:", "a:0", "a:65536", "u@a", "-"])
def test_settings_list_hosts_and_nothing_else(text: str) -> None:
    with pytest.raises(ValueError, match="host"):
        parse_host(text)
