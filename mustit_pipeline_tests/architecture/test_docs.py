"""The documents say what is so."""

import re
from pathlib import Path

import yaml

from mustit_pipeline.settings import Settings
from mustit_pipeline.settings.page import settings_page

ROOT = Path(__file__).parents[2]


def test_the_settings_page_is_what_the_settings_say() -> None:
    assert (ROOT / "docs" / "settings.md").read_text() == settings_page(), (
        "run: python -m mustit_pipeline.settings > docs/settings.md"
    )


def test_the_settings_page_shows_each_setting_once() -> None:
    shown = re.findall(r"^\| `MUSTIT_(\w+)`", settings_page(), re.MULTILINE)
    assert sorted(shown) == sorted(name.upper() for name in Settings.model_fields)


def test_every_link_in_the_documents_leads_somewhere() -> None:
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_room_of_the_architecture_page_exists_and_none_is_missing() -> None:
    drawn = set(re.findall(r"^  ([a-z_]+)[/.]", (ROOT / "ARCHITECTURE.md").read_text(), re.MULTILINE))
    built = {
        path.stem
        for path in (ROOT / "mustit_pipeline").iterdir()
        if path.suffix in ("", ".py") and not path.name.startswith("_")
    }
    assert drawn == built


def test_the_makefile_has_every_target_that_the_readme_names() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z]+)\b", (ROOT / "README.md").read_text()))
    assert named <= targets


def test_the_workspace_loads_the_definitions_under_the_agreed_name() -> None:
    [location] = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"]
    assert location["python_module"] == {
        "module_name": "mustit_pipeline.definitions",
        "location_name": "mustit_pipeline",
    }
