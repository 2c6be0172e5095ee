"""Which settings there are, and which variables look like one and are none."""

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
_TEST: Final = "PORTOLAN_TEST_"
_OTHERS: Final = frozenset(
    {"PORTOLAN_CACHE", "PORTOLAN_COMPETITORS", "PORTOLAN_DATASETS", "PORTOLAN_PURGE_TOKEN"}
)
"""Read where no settings are: by the jars' cache, benchmarks, and the proxies that ship with us."""

_KNOWN: Final = _OTHERS | {
    f"{_PREFIX}{name.upper()}" for model in SETTINGS for name in model.model_fields
}


def unknown_settings(environment: Iterable[str]) -> list[str]:
    """Return a sentence for each variable that has our prefix and sets nothing.

    They are no errors: platforms add variables of their own that begin with a service's name.
    """
    ours = (name for name in environment if name.upper().startswith(_PREFIX))
    return [
        _warning(name)
        for name in sorted(ours)
        if name.upper() not in _KNOWN and not name.upper().startswith(_TEST)
    ]


def _warning(name: str) -> str:
    near = nearest(_bare(name.upper()), map(_bare, _KNOWN))
    hint = f"; did you mean {_PREFIX}{near}?" if near else "; docs/settings.md lists all of them."
    return f"{name} is not a setting and changes nothing{hint}"


def _bare(name: str) -> str:
    """Return what distinguishes a setting; all begin alike."""
    return name.removeprefix(_PREFIX)
