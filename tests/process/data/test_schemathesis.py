"""Schemathesis over both OpenAPI documents: no 5xx, and answers that are as documented."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.generation.case import Case
from schemathesis.schemas import APIOperation, BaseSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from mediator.catalogue.connection import Catalogue
from mediator.catalogue.run_queue import CatalogueWorkers
from mediator.stores.port import SystemConfig
from tests.faults.caching.http_client import Connection
from tests.faults.service import Service
from tests.process.service import field_on

pytestmark = pytest.mark.filterwarnings(
    # Hypothesis takes any code that draws a random number meanwhile for a strategy.
    "ignore:Do not use the `random` module:hypothesis.errors.HypothesisDeprecationWarning"
)

BUSY = 503
EXAMPLES = 5
ANSWER_WITHIN_S = 120.0
CLASSES: dict[str, Any] = {
    "articles": {
        "fields": {
            "title": field_on("postgres", max_length=300),
            "hits": field_on("redis", "integer", default=0, index=True, group="hits"),
            "extra": field_on("postgres", "document"),
        }
    },
    "notes": {
        "fields": {"text": field_on("mongo"), "tags": field_on("mongo", "set", items="string")}
    },
    "sessions": {"fields": {"user": field_on("redis"), "seen": field_on("redis", "timestamp")}},
}
BODIES: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "articles": st.fixed_dictionaries(
        {"title": st.text(max_size=20)},
        optional={
            "hits": st.integers(-(2**63), 2**63 - 1),
            "extra": st.dictionaries(
                st.text(max_size=5), st.floats(allow_nan=False, allow_infinity=False)
            ),
        },
    ),
    "notes": st.fixed_dictionaries(
        {"text": st.text(max_size=20)},
        optional={"tags": st.lists(st.text(max_size=3), unique=True, max_size=3)},
    ),
    "sessions": st.fixed_dictionaries(
        {"user": st.text(max_size=20)},
        optional={"seen": st.datetimes().map(lambda t: f"{t.isoformat()}Z")},
    ),
}
AIMS: Final[Sequence[Mapping[str, str]]] = (
    {},
    *({"database": "shop", "class": name, "id": "there"} for name in CLASSES),
    {"database": "shop", "class_name": "articles", "field": "hits", "name": "redis"},
)
"""Path parameters of requests: arbitrary ones, or those of existing objects."""
CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
SLOW: Final = frozenset(
    {
        "POST /admin/v1/systems/{name}/calibration",
        "POST /admin/v1/systems",
        "GET /v1/{database}/changes",
        "GET /v1/shop/changes",
    }
)
"""Operations that measure a system each time, or wait for events (see `test_changes_api`)."""

Operation: TypeAlias = APIOperation[Any, Any, Any, Any]


@schemathesis.serializer("application/x-ndjson")
def ndjson(_: schemathesis.SerializationContext, value: Any) -> bytes:
    """Send a generated stream of lines unchanged."""
    return (value if isinstance(value, str) else json.dumps(value)).encode(errors="surrogatepass")


@pytest.fixture(scope="module")
async def service(
    own_systems: Sequence[SystemConfig], own_catalogue: str, redis_config: SystemConfig
) -> AsyncIterator[Service]:
    """A service on the mediator of the test run, so that systems are examined only once."""
    redis = {"sketch_url": redis_config.url, "coordination_url": redis_config.url}
    served = Service.on(own_systems, own_catalogue, sketch="redis", relays="here", **redis)
    async with served.running() as running:
        await running.favour()
        yield running


@pytest.mark.parametrize("mode", list(GenerationMode))
async def test_data_api(service: Service, mode: GenerationMode, own_catalogue: str) -> None:
    await fill(service)
    await register_worker(own_catalogue)
    await asyncio.to_thread(examine, service.data, mode)


@pytest.mark.parametrize("mode", list(GenerationMode))
async def test_data_api_of_a_database(
    service: Service, mode: GenerationMode, own_catalogue: str
) -> None:
    await fill(service)
    await register_worker(own_catalogue)
    await asyncio.to_thread(examine, f"{service.data}/v1/shop", mode)


@pytest.mark.parametrize("mode", list(GenerationMode))
async def test_admin_api(service: Service, mode: GenerationMode) -> None:
    await fill(service)
    await asyncio.to_thread(examine, service.admin, mode)


async def fill(service: Service) -> None:
    """Set a schema, and put an object of each class."""
    await service.put_schema("shop", CLASSES)
    async with Connection(service.data) as http:
        for class_name in CLASSES:
            answer = await http.request("PUT", f"/v1/shop/{class_name}/there", {})
            assert answer.status in (200, 201), answer


async def register_worker(own_catalogue: str) -> None:
    """Register a worker, so that jobs are accepted; they need not run here."""
    catalogue = Catalogue(own_catalogue)
    await CatalogueWorkers(catalogue).heartbeat("schemathesis", None)
    await catalogue.close()


def examine(address: str, mode: GenerationMode) -> None:
    """Try every operation that an API documents, and report all failures."""
    document = schemathesis.openapi.from_url(f"{address}/openapi.json", timeout=ANSWER_WITHIN_S)
    statuses: set[int] = set()
    failures = [
        f"{operation.label}: {failure}"
        for operation in operations(document)
        for failure in find_failures(operation, mode, statuses)
    ]
    assert not failures, "\n\n".join(failures)
    assert statuses >= ({200, 404} if mode is GenerationMode.POSITIVE else {400})


def operations(document: BaseSchema) -> Iterator[Operation]:
    for result in document.get_all_operations():
        assert isinstance(result, Ok), result
        operation = result.ok()
        if operation.label not in SLOW:
            yield operation


def find_failures(operation: Operation, mode: GenerationMode, statuses: set[int]) -> list[str]:
    """Return the failures, and add the statuses of all answers to `statuses`."""
    reported: dict[str, str] = {}

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def try_case(data: st.DataObject) -> None:
        case = data.draw(draw_case(operation, mode))
        response = case.call(session=session, timeout=ANSWER_WITHIN_S)
        if response.status_code == BUSY:  # with Retry-After: no defect, unless it stays
            time.sleep(float(response.headers["retry-after"][0]))
            response = case.call(session=session, timeout=ANSWER_WITHIN_S)
        statuses.add(response.status_code)
        try:
            case.validate_response(response, checks=CHECKS)
        except FailureGroup as group:
            for failure in group.exceptions:
                answer = f"{response.status_code} {response.text[:300]}"
                text = f"{failure}\n{answer}\n{case.as_curl_command()}"
                reported.setdefault(str(failure)[:60], text[:1500])

    with requests.Session() as session, suppress(Unsatisfiable):  # no input can be invalid
        try_case()
    return list(reported.values())


@st.composite
def draw_case(draw: st.DrawFn, operation: Operation, mode: GenerationMode) -> Case[Any]:
    """Draw a request, often for an existing object and with a body that fits."""
    aim = draw(st.sampled_from(AIMS))
    names = {parameter.name for parameter in operation.path_parameters}
    path = {name: value for name, value in aim.items() if name in names}
    case: Case[Any] = draw(operation.as_strategy(mode, path_parameters=path or None))
    body = BODIES.get(aim.get("class", "")) if "class" in names else None
    if body is not None and isinstance(case.body, dict) and mode is GenerationMode.POSITIVE:
        case.body = draw(body)
    return case
