"""Photographs to measure with: made here, so that every machine measures the same ones."""

import io
import json
import os
import random
from pathlib import Path
from typing import Final

from PIL import Image, ImageChops, ImageFilter

CORPUS: Final = "NINAKU_IMAGE_CORPUS"


def photograph(width: int, height: int, seed: int = 7) -> Image.Image:
    """A picture with the statistics of a photograph: soft light, shapes with edges, and grain at every scale."""
    dice = random.Random(seed)
    picture = Image.new("RGB", (width, height))
    for octave in range(1, 9):
        cells = 3 * 2**octave
        small = Image.frombytes("RGB", (cells, cells), dice.randbytes(cells * cells * 3))
        layer = small.resize((width, height), Image.Resampling.BICUBIC)
        picture = layer if octave == 1 else Image.blend(picture, layer, 0.5 ** (octave * 0.55))
    for _ in range(60):
        edge = dice.randrange(height // 12, height // 4)
        mask = Image.new("L", (edge, edge), 0)
        mask.paste(150, (edge // 8, edge // 8, edge - edge // 8, edge - edge // 8))
        colour = (dice.randrange(256), dice.randrange(256), dice.randrange(256))
        picture.paste(colour, (dice.randrange(width), dice.randrange(height)), mask.rotate(dice.randrange(90)))
    grain = Image.effect_noise((width, height), 9).filter(ImageFilter.GaussianBlur(0.6))
    return ImageChops.add(picture, Image.merge("RGB", (grain,) * 3), scale=1.0, offset=-128)


def encoded(picture: Image.Image, image_format: str, **options: object) -> bytes:
    """The picture as a file."""
    buffer = io.BytesIO()
    picture.save(buffer, format=image_format, **options)
    return buffer.getvalue()


def corpus_photographs(smallest_pixels: int = 8_000_000) -> dict[str, bytes]:
    """The accepted JPEGs of the image corpus with at least that many pixels and a megabyte; none without a corpus."""
    folder = os.environ.get(CORPUS)
    if not folder:
        return {}
    found = {}
    for line in Path(folder, "manifest.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if (
            entry["expect"] == "accept"
            and entry["declared_type"] == "image/jpeg"
            and entry["width"] * entry["height"] >= smallest_pixels
            and entry["bytes"] > 1_000_000
        ):
            found[entry["file"]] = Path(folder, "files", entry["file"]).read_bytes()
    return found
