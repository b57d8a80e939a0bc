"""Draws the bundled photo: a meal on a table, lying on its side with an EXIF orientation and a position, as phones do.

Run ``python -m services.cli.demo.make_photo`` from the project's root to draw it again: the same each time.
"""

import math
from pathlib import Path

from PIL import Image, ImageDraw, ImageFilter, ImageFont

WIDTH, HEIGHT = 1500, 2000
ORIENTATION_TURNED_RIGHT = 6
PHOTO = Path(__file__).parent / "photo.jpg"

_ORIENTATION, _MAKE, _MODEL, _GPS = 0x0112, 0x010F, 0x0110, 0x8825


def draw() -> Image.Image:
    """The upright picture, 1500 by 2000 pixels: light from the top, a plate, greens and a bowl."""
    rows = Image.linear_gradient("L").resize((WIDTH, HEIGHT))
    table = Image.composite(
        Image.new("RGB", (WIDTH, HEIGHT), (96, 58, 36)), Image.new("RGB", (WIDTH, HEIGHT), (206, 158, 112)), rows
    )
    grain = ImageDraw.Draw(table)
    for plank in range(0, WIDTH, 250):
        grain.rectangle((plank, 0, plank + 5, HEIGHT), fill=(84, 50, 30))
        for line in range(7):
            x = plank + 25 + line * 33
            points = [(x + 9 * math.sin(y / 140 + plank + line), y) for y in range(0, HEIGHT + 20, 20)]
            grain.line(points, fill=(150 - 6 * line, 104 - 5 * line, 68 - 4 * line), width=2)

    shadow = Image.new("L", (WIDTH, HEIGHT), 0)
    ImageDraw.Draw(shadow).ellipse((230, 560, 1330, 1660), fill=150)
    table.paste((40, 22, 12), mask=shadow.filter(ImageFilter.GaussianBlur(40)))

    plate = ImageDraw.Draw(table)
    plate.ellipse((200, 500, 1300, 1600), fill=(238, 236, 230))
    plate.ellipse((290, 590, 1210, 1510), fill=(250, 249, 245), outline=(222, 219, 211), width=6)
    for index in range(90):  # leaves, in the spiral of a sunflower so that none hides another
        angle, distance = index * 2.399963, 33 * math.sqrt(index)
        across, down = 750 + distance * math.cos(angle), 1050 + distance * math.sin(angle)
        size = 58 - index * 0.3
        green = (52 + (index * 37) % 70, 118 + (index * 53) % 80, 40 + (index * 29) % 40)
        plate.ellipse((across - size, down - size * 0.62, across + size, down + size * 0.62), fill=green)
    for index in range(16):
        angle = index * 2.399963 + 1
        distance = 60 + 70 * math.sqrt(index)
        across, down = 750 + distance * math.cos(angle), 1050 + distance * math.sin(angle)
        plate.ellipse((across - 46, down - 46, across + 46, down + 46), fill=(196, 44, 34))
        plate.ellipse((across - 22, down - 28, across + 4, down - 6), fill=(236, 128, 104))
    plate.ellipse((1010, 130, 1430, 550), fill=(64, 92, 120))
    plate.ellipse((1050, 170, 1390, 510), fill=(244, 196, 84))
    plate.ellipse((1110, 220, 1240, 330), fill=(252, 226, 150))
    plate.text((90, 110), "Ninaku", fill=(255, 246, 232), font=ImageFont.load_default(170))
    return table.filter(ImageFilter.GaussianBlur(1.2))


def save(path: Path) -> None:
    """Writes the picture as a phone would: turned on its side, told by EXIF, with make, model and a position."""
    exif = Image.Exif()
    exif[_ORIENTATION] = ORIENTATION_TURNED_RIGHT
    exif[_MAKE] = "Ninaku"
    exif[_MODEL] = "Demonstration"
    exif[_GPS] = {1: "S", 2: (12.0, 2.0, 45.6), 3: "W", 4: (77.0, 1.0, 40.8)}
    # Orientation 6 says "turn me right to see me upright", so the stored pixels are turned left.
    draw().transpose(Image.Transpose.ROTATE_90).save(path, "JPEG", quality=82, exif=exif.tobytes())


if __name__ == "__main__":
    save(PHOTO)
