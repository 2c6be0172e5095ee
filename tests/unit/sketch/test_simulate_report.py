"""The command, its files, and the page."""

from __future__ import annotations

import inspect
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import orjson
import pytest
import typer
from typer.testing import CliRunner

from sketch.instruments.simulate import page
from sketch.instruments.simulate.command import simulate

ROOT = Path(__file__).parents[3]
app = typer.Typer()
app.command()(simulate)
SMALL = ["--operations", "600", "--records", "50", "--starts", "1", "--max-ttl", "10"]


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [*SMALL, *map(str, arguments)])


class Elements(HTMLParser):
    """The tags, ids and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name in ("src", "href", "xlink:href"):
                self.links.append(value or "")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated")
    result = run(
        "--json", folder / "all.json", "--report", folder / "page.html", "--out", folder / "plots"
    )
    assert result.exit_code == 0, result.output
    return folder


def test_all_figures_are_written(files: Path) -> None:
    report = orjson.loads((files / "all.json").read_bytes())
    names = [entry["estimator"] for entry in report["entries"]]
    assert names == ["static", "cate", "learner", "oracle"]
    costs = {entry["estimator"]: entry["cost"] for entry in report["entries"]}
    assert costs["oracle"] == min(costs.values())
    static = report["entries"][0]
    assert static["cost"] == min(point["cost"] for point in static["tried"])
    assert static["tried"][0]["ttl_s"] == 0
    assert report["workload"]["operations"] == static["counts"]["operations"] == 600
    assert report["caches"] == ["client", "cdn"]
    assert report["weights"]["invalidation"] == 0.2


def test_the_page_is_self_contained(files: Path) -> None:
    text = (files / "page.html").read_text()
    page = Elements(text)
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert page.tags.count("svg") == 4
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    assert len(page.ids) == len(set(page.ids))
    assert "prefers-color-scheme: dark" in text
    assert "currentColor" in text
    assert "Reads beyond the bound: 0." in text


def test_simulate_runs_from_the_command_line(tmp_path: Path) -> None:
    """The real command, in a separate process, writes its findings and prints its speed."""
    command = [str(Path(sys.executable).with_name("portolan")), "simulate", *SMALL]
    file = tmp_path / "all.json"
    result = subprocess.run(
        [*command, "--workload", "b", "--json", file], capture_output=True, text=True, check=True
    )
    assert "ops/s" in result.stderr
    report = orjson.loads(file.read_bytes())
    assert report["workload"]["mix"]["update"] == 0.05
    for entry in report["entries"]:
        assert entry["operations_per_s"] > 0
        assert entry["counts"]["beyond_bound"] == 0


def test_every_option_is_explained() -> None:
    page = (ROOT / "docs" / "ttl.md").read_text()
    for option in inspect.signature(simulate).parameters:
        assert f"`--{option.replace('_', '-')}`" in page


def test_plots_are_separate_files(files: Path) -> None:
    names = sorted(file.name for file in (files / "plots").iterdir())
    assert names == ["cost.svg", "latency.svg", "reads.svg", "sweep.svg"]
    assert all(file.read_text().startswith("<svg") for file in (files / "plots").iterdir())


def test_one_estimator_alone(tmp_path: Path) -> None:
    result = run("--estimator", "learner", "--json", tmp_path / "x", "--report", tmp_path / "y")
    assert result.exit_code == 0, result.output
    assert [e["estimator"] for e in orjson.loads((tmp_path / "x").read_bytes())["entries"]] == [
        "learner"
    ]
    assert "The cheapest is learner" in (tmp_path / "y").read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--caches", "squid"),
        ("--origin", "far"),
        ("--weights", "1,2"),
        ("--weights", "0,1,1,1"),
        ("--weights", "a,1,1,1"),
        ("--ratio", "cubic"),
        ("--workload", "g"),
        ("--operations", "0"),
    ],
)
def test_invalid_options_are_refused(arguments: tuple[str, str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_without_matplotlib_no_report_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: Any) -> str:
        raise page.PlotsMissing("Plots need matplotlib: install portolan[plots].")

    monkeypatch.setattr("sketch.instruments.simulate.page.cost_plot", missing)
    result = run("--estimator", "oracle", "--report", tmp_path / "y")
    assert result.exit_code == 1
    assert not (tmp_path / "y").exists()
