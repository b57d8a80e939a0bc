"""The container facts the worker checks its child with."""

import pytest

from services.processing.webp import NotWebp, read_webp
from tests.support import images


@pytest.mark.parametrize("options", [{"quality": 80}, {"lossless": True}])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_reads_the_size_of_every_kind_of_still_webp(mode: str, options: dict[str, object]) -> None:
    picture = images.quadrants(131, 77, mode)
    if mode == "RGBA":
        picture.putalpha(90)
    facts = read_webp(images.encode(picture, "WEBP", **options))
    assert (facts.width, facts.height) == (131, 77)


def test_shows_the_chunk_that_carries_exif() -> None:
    facts = read_webp(images.encode(images.quadrants(80, 80), "WEBP", exif=images.exif()))
    assert b"EXIF" in facts.chunks


@pytest.mark.parametrize("cut", [0, 11, 12, 19, -1])
def test_refuses_a_container_whose_lengths_do_not_add_up(cut: int) -> None:
    data = images.encode(images.quadrants(80, 80), "WEBP")
    with pytest.raises(NotWebp):
        read_webp(data[:cut])
    with pytest.raises(NotWebp):
        read_webp(data + b"x")
