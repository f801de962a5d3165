"""A setting that nothing reads would promise what is not so."""

import ast
from pathlib import Path

import mustit_pipeline
from mustit_pipeline.settings import Settings

PACKAGE = Path(mustit_pipeline.__file__).parent
OWN = PACKAGE / "settings"
# Read through the settings' own methods.
SECRETS = {"token_key", "jwt_secret", "alert_urls"}
# Names that others rely on, of parts that are off: they have one value each, or no reader.
OFF = {"api_port", "task_transport"}


def read_names() -> set[str]:
    paths = [path for path in PACKAGE.rglob("*.py") if OWN not in path.parents and "simulator" not in path.parts]
    assert len(paths) > 50
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
    return {
        node.attr
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and "settings" in ast.unparse(node.value).lower()
    }


def test_every_setting_is_read_somewhere() -> None:
    assert set(Settings.model_fields) - read_names() - SECRETS <= OFF
