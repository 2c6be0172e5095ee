"""A secret is planted in every setting that can hold one, and searched in all output."""

from __future__ import annotations

import os
from typing import Any

import orjson
import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from app.commands.doctor.installation import examine_databases
from app.settings.access import AccessSettings
from app.settings.main import (
    CacheSettings,
    HttpSettings,
    JobSettings,
    MediatorSettings,
    SystemSettings,
)
from app.settings.purge import PurgeTarget
from app.settings.telemetry import TelemetrySettings
from tests.faults.operation.forked import called

PLANTED = "hush-hush-planted"
UNREACHABLE = f"postgresql://u:{PLANTED}@127.0.0.1:1/x"
MODELS: list[type[BaseModel]] = [
    AccessSettings,
    HttpSettings,
    MediatorSettings,
    CacheSettings,
    JobSettings,
    SystemSettings,
    PurgeTarget,
    TelemetrySettings,
]
SYSTEM = {"name": "away", "kind": "postgresql", "url": UNREACHABLE}
PURGER = {"name": "edge", "kind": "varnish", "at": "127.0.0.1:1", "token": PLANTED}
ENVIRONMENT = {
    "PORTOLAN_CATALOGUE_URL": UNREACHABLE,
    "PORTOLAN_COORDINATION_URL": f"redis://:{PLANTED}@127.0.0.1:1/0",
    "PORTOLAN_SKETCH_URL": f"redis://:{PLANTED}@127.0.0.1:1/1",
    "PORTOLAN_SYSTEMS": orjson.dumps([SYSTEM]).decode(),
    "PORTOLAN_PURGE": orjson.dumps([PURGER]).decode(),
    "PORTOLAN_CONTINUOUS_URL": UNREACHABLE,
    "PORTOLAN_KEY": PLANTED,
    "PORTOLAN_LOG_LEVEL": "debug",
}


def test_every_setting_that_may_hold_a_secret_is_planted_here() -> None:
    secret = {
        f"{model.__name__}.{name}"
        for model in MODELS
        for name, field in model.model_fields.items()
        if "SecretStr" in str(field.annotation)
    }
    assert secret == {
        "AccessSettings.key",
        "MediatorSettings.catalogue_url",
        "MediatorSettings.coordination_url",
        "SystemSettings.url",
        "CacheSettings.sketch_url",
        "JobSettings.continuous_url",
        "PurgeTarget.token",
    }


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_an_invalid_setting_is_reported_without_its_value(model: type[BaseModel]) -> None:
    """Every member is wrong, and contains the secret."""
    wrong: dict[str, Any] = {
        name: {"no": [PLANTED]} for name in model.model_fields if name != "spark_conf"
    }
    with pytest.raises(ValidationError) as refused:
        model.model_validate(wrong)
    assert PLANTED not in str(refused.value)
    assert PLANTED not in repr(refused.value)


@pytest.mark.parametrize(
    "text", [[{**SYSTEM, "name": None}], [{"url": UNREACHABLE}], [{**SYSTEM, "x": 1}]]
)
def test_an_invalid_system_does_not_reveal_its_address(text: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        MediatorSettings(systems=text)
    assert PLANTED not in str(refused.value)


def test_the_address_of_a_receiver_which_is_logged_has_no_password() -> None:
    with pytest.raises(ValidationError) as refused:
        TelemetrySettings(otlp_endpoint=f"http://u:{PLANTED}@collector.example:4318")
    assert PLANTED not in str(refused.value)


def test_settings_do_not_print_their_secrets() -> None:
    sections = [
        MediatorSettings(catalogue_url=SecretStr(UNREACHABLE), systems=[SystemSettings(**SYSTEM)]),
        CacheSettings(sketch_url=SecretStr(UNREACHABLE), purge=[PurgeTarget(**PURGER)]),
        AccessSettings(key=SecretStr(PLANTED)),
        JobSettings(continuous_url=SecretStr(UNREACHABLE)),
    ]
    for settings in sections:
        assert PLANTED not in f"{settings!r} {settings} {settings.model_dump_json()}"


async def output_of(*arguments: str, **overrides: str) -> str:
    """Return all output of a command with the secret planted in all settings."""
    result = await called(arguments, {**os.environ, **ENVIRONMENT, **overrides})
    assert result.exit_code != 0
    return result.stdout + result.stderr


@pytest.mark.parametrize(
    ("arguments", "overrides"),
    [
        (("serve",), {}),
        (("serve",), {"PORTOLAN_PURGE": orjson.dumps([{"token": PLANTED}]).decode()}),
        (("serve",), {"PORTOLAN_OTLP_ENDPOINT": f"http://u:{PLANTED}@collector.example:4318"}),
        (("key", "list"), {"PORTOLAN_CATALOGUE_URL": f"postgre sql//u:{PLANTED}@h:port/x"}),
    ],
)
async def test_failing_commands_do_not_print_the_secret(
    arguments: tuple[str, ...], overrides: dict[str, str]
) -> None:
    output = await output_of(*arguments, **overrides)
    assert output
    assert PLANTED not in output


async def test_the_doctor_does_not_print_the_secret() -> None:
    settings = MediatorSettings(
        catalogue_url=SecretStr(UNREACHABLE), systems=[SystemSettings.model_validate(SYSTEM)]
    )
    findings = await examine_databases(settings)
    assert len(findings) == 2
    assert PLANTED not in str(findings)
