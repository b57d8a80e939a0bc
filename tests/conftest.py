"""Every module of tests/support is a plugin: its fixtures are there for every layer of tests."""

from pathlib import Path

pytest_plugins = [
    f"tests.support.{module.stem}"
    for module in sorted((Path(__file__).parent / "support").glob("*.py"))
    if module.stem != "__init__"
]
