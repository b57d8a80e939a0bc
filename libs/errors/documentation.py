"""The table of public codes in this folder's README, written from the registry.

``python -m libs.errors.documentation`` rewrites it; a test fails when it is out of date.
"""

from pathlib import Path
from typing import Final

from libs.errors.registry import REGISTRY

README: Final = Path(__file__).with_name("README.md")
BEGIN: Final = "<!-- codes: written by python -m libs.errors.documentation -->"
END: Final = "<!-- end of codes -->"


def codes_table() -> str:
    """Return the Markdown table of every public code: statuses, message and remedy."""
    rows = ["| code | HTTP | gRPC | message | remedy |", "|---|---|---|---|---|"]
    rows += [
        f"| `{entry.code}` | {entry.http_status} | {entry.grpc_status.name} | {entry.message} | {entry.remedy} |"
        for entry in REGISTRY.values()
    ]
    return "\n".join(rows)


def with_table(text: str) -> str:
    """Return the README's text with the present table between its markers; ValueError without them."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError("the README has lost the markers of its table")
    return f"{head}{begin}\n{codes_table()}\n{end}{tail}"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")
