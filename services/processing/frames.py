"""What travels over the two pipes between the worker and its decoding child.

A request is the profile number, the length, and the photo. An answer is a kind, the length of a JSON head, the head,
and after it the pictures that the head announces, one behind the other. Neither side trusts the other's lengths.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import orjson

REQUEST_HEAD: Final = struct.Struct(">HI")
ANSWER_HEAD: Final = struct.Struct(">BI")
MAX_ANSWER_HEAD_BYTES: Final = 16_384


class AnswerKind(IntEnum):
    """What the child has to say."""

    STARTED = 1
    RENDERED = 2
    REFUSED = 3
    OUT_OF_MEMORY = 4
    FAILED = 5


@dataclass(frozen=True, slots=True)
class AnnouncedImage:
    """One picture that follows the head; sizes are pixels and bytes."""

    code: str
    width: int
    height: int
    byte_size: int


class NotAnAnswer(Exception):
    """The head of an answer does not have its shape."""


def pack_answer(kind: AnswerKind, head: dict[str, Any]) -> bytes:
    """The bytes of an answer up to its pictures."""
    body = orjson.dumps(head)
    return ANSWER_HEAD.pack(kind, len(body)) + body


def unpack_head(body: bytes) -> dict[str, Any]:
    """The head of an answer. Raises NotAnAnswer when it is no JSON object."""
    try:
        head = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise NotAnAnswer("the head is not JSON") from error
    if not isinstance(head, dict):
        raise NotAnAnswer("the head is not an object")
    return head


def announced_images(head: dict[str, Any]) -> tuple[AnnouncedImage, ...]:
    """The pictures that a `RENDERED` head announces. Raises NotAnAnswer when an entry does not have its shape."""
    entries = head.get("images")
    if not isinstance(entries, list):
        raise NotAnAnswer("the head announces no list of images")
    images: list[AnnouncedImage] = []
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("code"), str):
            raise NotAnAnswer("an announced image has no code")
        images.append(
            AnnouncedImage(entry["code"], positive(entry, "width"), positive(entry, "height"), positive(entry, "bytes"))
        )
    return tuple(images)


def positive(entry: dict[str, Any], name: str) -> int:
    """The positive integer called `name`. Raises NotAnAnswer for anything else."""
    value = entry.get(name)
    if type(value) is not int or value <= 0:
        raise NotAnAnswer(f"{name} is not a positive integer")
    return value
