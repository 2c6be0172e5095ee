"""The command line as a whole: its imports, and how commands fail."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli import COMMANDS, command_line
from app.commands.demo.failed import Failed
from app.commands.doctor.installation import Finding, examine_environment


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_called_by_its_name_alone_or_among_others(name: str) -> None:
    alone, among = (
        CliRunner().invoke(app, [name, "--help"]) for app in (command_line([name]), command_line())
    )
    assert alone.exit_code == among.exit_code == 0
    assert alone.output == among.output


HEAVY = {
    *("alembic", "asyncpg", "fastapi", "httpx", "opentelemetry", "orjson", "pandas", "pyarrow"),
    *("prometheus_client", "psutil", "pydantic_settings", "pymongo", "pyspark", "redis"),
    *("sqlalchemy", "starlette", "uvicorn", "uvloop"),
    *(
        "app.service.container",
        "app.service.serving",
        "app.settings.main",
        "mediator.service",
        "spark_jobs.session",
    ),
}
"""The modules that take the longest to import."""


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--version"], ["job", "run", "-h"], []])
def test_help_does_not_import_the_modules_of_commands(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from app.cli import main\n"
        "try: main()\n"
        f"except SystemExit: assert not {HEAVY!r} & sys.modules.keys()"
    )
    result = run_python(code, *arguments)
    assert result.returncode == 0, result.stderr
    assert result.stdout or result.stderr


def test_a_remedy_is_printed_as_it_is_to_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brackets are not markup."""
    missing = Finding("Spark", found=False, detail="[/] no pyspark", remedy='"portolan[spark]"')
    monkeypatch.setattr("app.commands.doctor.installation.examine", lambda *_, **__: [missing])
    result = CliRunner().invoke(command_line(["doctor"]), ["doctor"], env={"COLUMNS": "200"})
    assert "[/] no pyspark" in result.output
    assert '"portolan[spark]"' in result.output


def test_a_demo_whose_request_is_refused_ends_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(*_: Any) -> None:
        raise Failed("PUT /v1/news: 413 [/] too large")

    monkeypatch.setattr("app.commands.demo.story.run_demo", refuse)
    result = CliRunner().invoke(command_line(["demo"]), ["demo"], env={"COLUMNS": "200"})
    assert result.exit_code == 1
    assert "Portolan cannot run: PUT /v1/news: 413 [/] too large" in result.output
    assert "Traceback" not in result.output


def run_python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    settings = {**os.environ, **environment, "COLUMNS": "200"}
    return subprocess.run(command, env=settings, check=False, capture_output=True, text=True)


MAIN = "from app.cli import main; main()"


def test_an_unknown_variable_causes_a_warning() -> None:
    result = run_python(
        MAIN, "bench", "--list", PORTOLAN_PROT="80", PORTOLAN_TEST_REDIS_URL="redis://x"
    )
    assert result.returncode == 0
    assert result.stderr.splitlines() == [
        "Warning: PORTOLAN_PROT is not a setting and changes nothing; did you mean PORTOLAN_PORT?"
    ]


def test_the_doctor_finds_unknown_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORTOLAN_SPARK_MASTER", "local")
    monkeypatch.setenv("portolan_port", "1")
    [finding] = examine_environment()
    assert (finding.found, finding.fatal) == (False, False)
    assert finding.detail.startswith("PORTOLAN_SPARK_MASTER is not a setting")


def test_files_of_commands_are_readable_by_their_user_only(tmp_path: Path) -> None:
    keys, people, encoded = (tmp_path / name for name in ("keys", "people.csv", "encoded.csv"))
    people.write_text("id,name\n1,Anna\n")
    options = ("--keys", str(keys), "--fields", "name", "--workers", "1")
    previous = os.umask(0)
    try:
        assert run_python(MAIN, "encode", "--keys", str(keys), "--new-keys").returncode == 0
        result = run_python(MAIN, "encode", str(people), str(encoded), *options)
    finally:
        os.umask(previous)
    assert result.returncode == 0, result.stderr
    assert {stat.S_IMODE(file.stat().st_mode) for file in (keys, encoded)} == {0o600}


def test_an_invalid_setting_ends_a_command_with_a_sentence() -> None:
    result = run_python(MAIN, "bench", "--list", PORTOLAN_LOG_FORMAT="loud")
    assert result.returncode == 1
    assert result.stderr.startswith("Portolan cannot run: ")


@pytest.mark.parametrize(
    "command", [["verify", "shop"], ["rebuild-view", "shop"], ["schema", "list"], ["why", "shop"]]
)
def test_a_service_that_does_not_answer_ends_a_command_with_a_sentence(command: list[str]) -> None:
    result = CliRunner().invoke(command_line(), [*command, "--url", "http://127.0.0.1:1"])
    assert result.exit_code == 1
    message = " ".join(result.stderr.split())
    assert message.startswith("That was not done: The service at http://127.0.0.1:1 does not")


def test_an_unknown_benchmark_is_refused() -> None:
    result = CliRunner().invoke(command_line(), ["bench", "nonsense"])
    assert result.exit_code == 1
    assert result.stderr.startswith("Portolan cannot run:")


def test_a_command_of_a_checkout_is_refused_without_one() -> None:
    """An installed wheel has no benchmarks."""
    code = "import app.cli; app.cli.find_spec = lambda name: None; app.cli.main()"
    result = run_python(code, "bench", "--list")
    assert result.returncode == 2
    assert "checkout" in result.stderr
    assert "bench" not in run_python(code, "--help").stdout


@pytest.mark.parametrize(
    ("words", "offered"), [("portolan sch", "schema"), ("portolan schema ap", "apply")]
)
def test_a_shell_completes_commands(words: str, offered: str) -> None:
    code = f"import sys; sys.argv[0] = 'portolan'; {MAIN}"
    completion = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    result = run_python(code, _PORTOLAN_COMPLETE="complete_bash", **completion)
    assert result.stdout.split() == [offered], result.stderr


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [(["shcema"], "schema"), (["qurey", "shop"], "query"), (["key", "lst"], "list")],
)
def test_a_mistyped_command_gets_a_suggestion(arguments: list[str], suggestion: str) -> None:
    result = run_python(MAIN, *arguments)
    assert result.returncode == 2
    assert f"Did you mean '{suggestion}'?" in result.stderr
