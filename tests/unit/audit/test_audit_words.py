"""The words of identifiers: banned words are found in every kind of name."""

from __future__ import annotations

from pathlib import Path

from audit.words import unwanted_words

MODULE = """
class HearingLine:
    def on_told(self, place: str) -> None:
        self.verdict = told = place

def place(schema: str, most: int) -> str:
    most_selective = schema
    return most_selective
"""


def test_unwanted_words_are_found_in_definitions(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "judgement.py").write_text(MODULE)
    names = {line.split(": ")[1] for line in unwanted_words(tmp_path)}
    assert names == {"judgement", "HearingLine", "on_told", "place", "verdict", "told", "most"}
