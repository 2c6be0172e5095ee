"""The command line as a whole: what it imports, and how commands end that cannot be carried out."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from app.cli import COMMANDS, command_line


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_called_by_its_name_alone_or_among_others(name: str) -> None:
    alone, among = (
        CliRunner().invoke(app, [name, "--help"]) for app in (command_line([name]), command_line())
    )
    assert alone.exit_code == among.exit_code == 0
    assert alone.output == among.output


def test_only_the_command_that_is_called_is_imported() -> None:
    code = (
        "import sys; sys.argv = ['portolan', 'encode', '--help']\n"
        "from app.cli import main\n"
        "try: main()\n"
        "finally: assert not {'fastapi', 'sqlalchemy', 'app.serve'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize("command", ["verify", "rebuild-primary"])
def test_a_service_that_does_not_answer_ends_a_command_with_a_sentence(command: str) -> None:
    result = CliRunner().invoke(command_line(), [command, "shop", "--url", "http://127.0.0.1:1"])
    assert result.exit_code == 1
    told = " ".join(result.stderr.split())
    assert told.startswith("Portolan cannot run: The admin API at http://127.0.0.1:1 does not")


def test_a_benchmark_that_is_not_there_is_told() -> None:
    result = CliRunner().invoke(command_line(), ["bench", "nonsense"])
    assert result.exit_code == 1
    assert result.stderr.startswith("Portolan cannot run:")
