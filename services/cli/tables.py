"""Aligned columns that are never cut: an id is for copying."""

from collections.abc import Sequence


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Header and rows as lines of text, each column as wide as its longest value, two spaces between."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    return "\n".join(
        "  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    )
