"""Findings about a running installation: whether it serves, and whether its data are its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import quote

import httpx
from pydantic import SecretStr

from app.commands.doctor.installation import Finding
from app.settings.access import bearer

__all__ = ["examine_service"]

_TIMEOUT_S: Final = 300.0
_DENIED: Final = (401, 403)
_REMEDY: Final = (
    "Somebody has written to a store past Portolan, or a store has lost writes. Write these objects"
    " again through the data API; docs/backup.md says how to find out more."
)


async def examine_service(url: str, objects: int, key: SecretStr | None = None) -> list[Finding]:
    """Examine an installation by its admin API; compare at most `objects` of each database."""
    headers = bearer(key)
    try:
        async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S, headers=headers) as admin:
            return [finding async for finding in _findings(admin, objects)]
    except httpx.HTTPStatusError as error:
        return [_refused(url, error.response.status_code)]
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return [_not_admin_api(f"{url} does not answer: {type(error).__name__}")]
    except (ValueError, LookupError, TypeError, AttributeError):
        # JSON of another form, or none: the data API, or a foreign server.
        return [_not_admin_api(f"{url} answers, but not as an admin API")]


def _not_admin_api(detail: str) -> Finding:
    remedy = "Give the address of the admin API, such as http://127.0.0.1:8081."
    return Finding("admin API", False, detail, remedy, fatal=True)


def _refused(url: str, status: int) -> Finding:
    if status in _DENIED:
        detail = f"{url} requires a key of the operator that is granted admin ({status})"
        remedy = "Give it in PORTOLAN_KEY, or in a file by --key-file."
        return Finding("admin API", False, detail, remedy, fatal=True)
    return Finding("admin API", False, f"{url} answered {status}", fatal=True)


async def _findings(admin: httpx.AsyncClient, objects: int) -> AsyncIterator[Finding]:
    ready = (await admin.get("/ready")).json()
    degraded = ", ".join(ready["degraded"])
    detail = f"without {degraded}" if degraded else "it is ready"
    yield Finding("service", ready["ready"], detail, fatal=not ready["ready"])
    for system in _items(await admin.get("/admin/v1/systems")):
        serves = system["state"] == "serving"
        detail = system["state"] if serves else f"{system['state']}: {system['error']}"
        yield Finding(f"system {system['name']} ({system['kind']})", serves, detail)
    for database in _items(await admin.get("/admin/v1/schemas")):
        name = database["name"]
        if database["mode"] != "advisory":
            path = f"/admin/v1/integrity/{quote(name, safe='')}"
            yield _integrity(name, await admin.post(path, params={"objects": objects}))


def _items(answer: httpx.Response) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = answer.raise_for_status().json()["items"]
    return items


def _integrity(name: str, answer: httpx.Response) -> Finding:
    subject, report = f"objects of {name}", answer.json()
    if answer.is_error:
        return Finding(subject, False, f"they cannot be compared: {report.get('detail', '')}")
    unknown = report["older"] + report["left_out"]
    detail = f"{report['compared']:,} are what the feed says; nothing is known of {unknown:,}"
    if not report["wrong"]:
        return Finding(subject, True, detail)
    counts = ", ".join(f"{count:,} {fault}" for fault, count in report["wrong"].items())
    examples = ", ".join(_example(example) for example in report["examples"][:5])
    return Finding(subject, False, f"{counts}; for example {examples}", _REMEDY, fatal=True)


def _example(example: dict[str, Any]) -> str:
    fields = f" ({', '.join(example['fields'])})" if example["fields"] else ""
    return f"{example['class']}/{example['id']}{fields}: {example['wrong']}"
