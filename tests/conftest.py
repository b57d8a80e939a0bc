"""Every module of tests/support is a plugin: its fixtures are there for every layer of tests."""

from pathlib import Path

import pytest

pytest_plugins = [
    f"tests.support.{module.stem}"
    for module in sorted((Path(__file__).parent / "support").glob("*.py"))
    if module.stem != "__init__"
]
# They import each other, so all are announced before the first is imported.
pytest.register_assert_rewrite(*pytest_plugins)
