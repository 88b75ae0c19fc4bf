"""Printing: the documented default file, the effective configuration, and no secret in either."""

from __future__ import annotations

import json
from pathlib import Path

from lakebed.config import Settings, default_file_text, effective_json, effective_text, load_settings
from lakebed.config.schema import entries, sections

REPOSITORY = Path(__file__).parents[3]
SECRET = {"LAKEBED__OBJECTS__SECRET_KEY": "hunter2", "LAKEBED__OBJECTS__TOKEN": "hunter3"}


def test_committed_default_file_is_the_generated_one() -> None:
    committed = (REPOSITORY / "docs" / "lakebed.yaml").read_text()
    assert committed == default_file_text(), "run: lakebed config show --defaults > docs/lakebed.yaml"


def test_default_file_loads_as_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "lakebed.yaml"
    path.write_text(default_file_text())
    assert load_settings(path).settings == Settings()


def test_default_file_names_and_explains_every_key() -> None:
    text = default_file_text()
    for entry in entries().values():
        assert f"{entry.key}:" in text
        assert " ".join(entry.description.split()[:4]) in text
    assert all(f"\n{name}:\n" in text for name in sections() if name)


def test_effective_text_loads_as_the_same_settings(tmp_path: Path) -> None:
    loaded = load_settings(environment={"LAKEBED__ROOT": "no: 'x' #y", "LAKEBED__KERNEL__RETENTION": "36h"})
    path = tmp_path / "lakebed.yaml"
    path.write_text(effective_text(loaded, with_origins=True))
    assert load_settings(path).settings == loaded.settings


def test_origins_are_shown_beside_the_values() -> None:
    text = effective_text(load_settings(environment={"LAKEBED__DOMAINS": "2"}), with_origins=True)
    assert "domains: 2  # LAKEBED__DOMAINS\n" in text
    assert "  retention: 7d  # default\n" in text


def test_json_has_values_as_the_file_would_have_them() -> None:
    document = effective_json(load_settings(environment={"LAKEBED__DOMAINS": "2"}), with_origins=True)
    assert document["settings"]["domains"] == 2  # type: ignore[index]
    assert document["settings"]["kernel"]["retention"] == "7d"  # type: ignore[index]
    assert document["origins"]["domains"] == "LAKEBED__DOMAINS"  # type: ignore[index]


def test_no_secret_is_shown_anywhere() -> None:
    loaded = load_settings(environment=SECRET)
    shown = [repr(loaded), effective_text(loaded, True), json.dumps(effective_json(loaded, True)), str(loaded.settings)]
    assert not [text for text in shown if "hunter" in text]
    assert loaded.settings.objects.secret_key is not None
    assert loaded.settings.objects.secret_key.reveal() == "hunter2"


def test_every_default_is_itself_allowed() -> None:
    for entry in entries().values():
        if entry.default is not None:
            assert entry.parse(entry.format(entry.default)) == entry.default
