"""The numbered sets of renditions an asset is served in.

A profile never changes once assets exist under it: a new look is a new number.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Fit(StrEnum):
    """How a picture meets its box."""

    COVER = "cover"
    """Exactly edge × edge pixels, cropped on the most interesting part; a smaller source is enlarged to fill."""

    INSIDE = "inside"
    """The longer side is at most `edge` pixels; the whole picture is kept and never enlarged."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """The box of a rendition; `edge` is in pixels."""

    fit: Fit
    edge: int


@dataclass(frozen=True, slots=True)
class Rendition:
    """One rendition of a profile: `code` names its row, `name` its object and its field; `quality` is WebP's 0..100."""

    code: str
    name: str
    geometry: Geometry
    quality: int


PROFILE_1: Final = 1

RENDITIONS: Final[Mapping[int, tuple[Rendition, ...]]] = MappingProxyType(
    {
        PROFILE_1: (
            Rendition("p1-thumbnail", "thumbnail", Geometry(Fit.COVER, 160), 80),
            Rendition("p1-tile", "tile", Geometry(Fit.COVER, 320), 80),
            Rendition("p1-card", "card", Geometry(Fit.INSIDE, 640), 80),
            Rendition("p1-detail", "detail", Geometry(Fit.INSIDE, 1280), 82),
        ),
    }
)

_CODE: Final = re.compile(r"p([1-9][0-9]{0,4})-([a-z]+)")


def rendition_name(code: str) -> str:
    """The name behind a variant code (`p1-tile` → `tile`).

    Raises ValueError for a code that no profile has, `original` among them.
    """
    match = _CODE.fullmatch(code)
    if match is not None:
        for rendition in RENDITIONS.get(int(match[1]), ()):
            if rendition.code == code:
                return rendition.name
    raise ValueError(f"no rendition profile has the code {code!r}")


def variant_code(profile: int, name: str) -> str:
    """The variant code of a profile's rendition (1, `tile` → `p1-tile`). Raises ValueError when there is none."""
    for rendition in RENDITIONS.get(profile, ()):
        if rendition.name == name:
            return rendition.code
    raise ValueError(f"rendition profile {profile} has no rendition named {name!r}")
