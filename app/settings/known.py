"""All settings, and warnings about environment variables that only look like one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from app.settings.access import AccessSettings
from app.settings.main import CacheSettings, HttpSettings, JobSettings, MediatorSettings
from app.settings.telemetry import TelemetrySettings
from mediator.base.suggestions import nearest

__all__ = ["SETTINGS", "unknown_settings"]

SETTINGS: Final = (
    AccessSettings,
    HttpSettings,
    MediatorSettings,
    CacheSettings,
    JobSettings,
    TelemetrySettings,
)

_PREFIX: Final = "PORTOLAN_"
_TEST_PREFIX: Final = "PORTOLAN_TEST_"
_OTHER_VARIABLES: Final = frozenset(
    {"PORTOLAN_CACHE", "PORTOLAN_COMPETITORS", "PORTOLAN_DATASETS", "PORTOLAN_PURGE_TOKEN"}
)
"""Variables that are not settings: of the jar cache, benchmarks, and the shipped proxies."""

_KNOWN_VARIABLES: Final = _OTHER_VARIABLES | {
    f"{_PREFIX}{name.upper()}" for model in SETTINGS for name in model.model_fields
}


def unknown_settings(environment: Iterable[str]) -> list[str]:
    """Return a warning for each variable that has our prefix but is not a setting.

    These are not errors: platforms add variables that begin with a service's name.
    """
    prefixed = (name for name in environment if name.upper().startswith(_PREFIX))
    return [
        _warning(name)
        for name in sorted(prefixed)
        if name.upper() not in _KNOWN_VARIABLES and not name.upper().startswith(_TEST_PREFIX)
    ]


def _warning(name: str) -> str:
    suggestion = nearest(_without_prefix(name.upper()), map(_without_prefix, _KNOWN_VARIABLES))
    hint = (
        f"; did you mean {_PREFIX}{suggestion}?"
        if suggestion
        else "; docs/settings.md lists all of them."
    )
    return f"{name} is not a setting and changes nothing{hint}"


def _without_prefix(name: str) -> str:
    """Remove the common prefix of settings."""
    return name.removeprefix(_PREFIX)
