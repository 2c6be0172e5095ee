"""Changes that are asked for by other sites."""

from __future__ import annotations

import pytest
from starlette.requests import Request

from app.http.problems import HttpError
from app.http.same_origin import refuse_other_sites


def request(method: str, **headers: str) -> Request:
    named = {
        name.replace("_", "-"): value
        for name, value in {"host": "a.example:8081", **headers}.items()
    }
    pairs = [(name.encode(), value.encode()) for name, value in named.items()]
    return Request({"type": "http", "method": method, "headers": pairs})


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "FETCH"])
@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "cross-site", "origin": "http://a.example:8081"},
        {"sec_fetch_site": ""},
        {"origin": "http://b.example:8081"},
        {"origin": "http://a.example"},
        {"origin": "null"},
        {"origin": ""},
    ],
)
async def test_what_another_site_asks_for_is_refused(method: str, headers: dict[str, str]) -> None:
    with pytest.raises(HttpError) as refused:
        await refuse_other_sites(request(method, **headers))
    assert refused.value.type.status == 403


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "none"},
        {"sec_fetch_site": "same-origin", "origin": "null"},
        {"origin": "http://a.example:8081"},
        {"origin": "https://a.example:8081"},
    ],
)
async def test_our_own_pages_and_programs_may_change(headers: dict[str, str]) -> None:
    await refuse_other_sites(request("POST", **headers))


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
async def test_reading_is_nobody_elses_change(method: str) -> None:
    await refuse_other_sites(request(method, sec_fetch_site="cross-site"))
