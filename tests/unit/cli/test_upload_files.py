"""What the command line says about a file before anything is sent."""

import os
import uuid
from pathlib import Path

import pytest

from libs.assets.media_types import MAX_UPLOAD_BYTES, MediaType
from services.cli.failures import Failure
from services.cli.local.state import StateFolder
from services.cli.uploading.command import gateway_access
from services.cli.uploading.files import SendableFile, UnsendableFile, inspect_file

JPEG = b"\xff\xd8\xff\xe0" + bytes(60)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(60)
WEBP = b"RIFF\x00\x00\x00\x00WEBPVP8 " + bytes(60)
AVIF = b"\x00\x00\x00\x1cftypavif\x00\x00\x00\x00avifmif1miaf" + bytes(60)
AVIF_BY_COMPATIBLE_BRAND = b"\x00\x00\x00\x1cftypmif1\x00\x00\x00\x00mif1avifmiaf" + bytes(60)
HEIC = b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic" + bytes(60)
HEIC_BY_COMPATIBLE_BRAND = b"\x00\x00\x00\x18ftypmif1\x00\x00\x00\x00mif1heic" + bytes(60)


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "media_type"),
    [
        (JPEG, MediaType.JPEG),
        (PNG, MediaType.PNG),
        (WEBP, MediaType.WEBP),
        (AVIF, MediaType.AVIF),
        (AVIF_BY_COMPATIBLE_BRAND, MediaType.AVIF),
    ],
)
def test_the_type_comes_from_the_leading_bytes_and_not_from_the_name(
    tmp_path: Path, content: bytes, media_type: MediaType
) -> None:
    path = write(tmp_path, "photo.txt", content)
    assert inspect_file(path) == SendableFile(path, len(content), media_type)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (HEIC, "HEIC"),
        (HEIC_BY_COMPATIBLE_BRAND, "HEIC"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
        (b'\xef\xbb\xbf<?xml version="1.0"?><svg/>', "SVG"),
        (b"GIF89a" + bytes(60), "GIF"),
        (b"%PDF-1.7" + bytes(60), "PDF"),
        (b"II*\x00" + bytes(60), "TIFF"),
        (b"\x00\x00\x00\x18ftypavis\x00\x00\x00\x00avis" + bytes(60), "animated"),
        (b"\x00\x00\x00\x18ftypisom\x00\x00\x00\x00isom" + bytes(60), "video"),
        (b"hello", "not a picture"),
    ],
)
def test_what_cannot_be_sent_is_named_in_words_with_a_way_out(tmp_path: Path, content: bytes, word: str) -> None:
    inspected = inspect_file(write(tmp_path, "photo.jpg", content))
    assert isinstance(inspected, UnsendableFile)
    assert word in inspected.explanation
    assert "JPEG, PNG, WebP or AVIF" in inspected.remedy


def test_a_file_of_exactly_ten_mebibytes_is_sent_and_one_byte_more_is_explained(tmp_path: Path) -> None:
    largest = write(tmp_path, "largest.jpg", JPEG + bytes(MAX_UPLOAD_BYTES - len(JPEG)))
    larger = write(tmp_path, "larger.jpg", JPEG + bytes(MAX_UPLOAD_BYTES - len(JPEG) + 1))
    assert isinstance(inspect_file(largest), SendableFile)
    refused = inspect_file(larger)
    assert isinstance(refused, UnsendableFile)
    assert "10 MiB" in refused.reason


def test_an_empty_a_missing_and_a_folder_are_explained(tmp_path: Path) -> None:
    empty, missing = inspect_file(write(tmp_path, "empty.jpg", b"")), inspect_file(tmp_path / "nowhere.jpg")
    folder = inspect_file(tmp_path)
    assert isinstance(empty, UnsendableFile) and "empty" in empty.reason
    assert isinstance(missing, UnsendableFile) and "no such file" in missing.reason
    assert isinstance(folder, UnsendableFile) and "folder" in folder.reason


def test_a_pipe_or_a_device_is_explained_and_never_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "photo.jpg"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        inspected = inspect_file(path)
        assert isinstance(inspected, UnsendableFile)
        assert "pipe or a device" in inspected.explanation


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("gateway", "nonsense"),
        ("gateway", "ftp://example.com"),
        ("gateway", "http://"),
        ("gateway", "http://[bad"),
        ("gateway", "https://example.com/?a=b"),
        ("session", "a b"),
        ("session", "a\nb"),
        ("session", "é"),
        ("session", "x" * 257),
        ("organization", "é"),
        ("organization", "my restaurant"),
    ],
)
def test_an_option_that_no_gateway_could_take_is_named_before_anything_is_sent(
    tmp_path: Path, option: str, value: str
) -> None:
    options = {"gateway": "https://example.com", "session": "abc", "organization": str(uuid.uuid4())}
    state = StateFolder(tmp_path)
    assert gateway_access(state, **options).base_url == "https://example.com"
    with pytest.raises(Failure, match=f"--{option} "):
        gateway_access(state, **(options | {option: value}))
