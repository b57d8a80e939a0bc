"""The decoding child: `python -m services.processing.child_process <parent pid> <memory bytes>` (DESIGN D6).

It is started with an empty environment, so it holds no credential, and limits itself before libvips is loaded: memory,
files, core dumps, and its own death when its parent dies. It knows nothing but the photo on its standard input.
"""

import ctypes
import os
import resource
import signal
import sys
from typing import BinaryIO, Final

from services.processing.domain import ImageRefused, RenderedPhoto
from services.processing.frames import REQUEST_HEAD, AnswerKind, pack_answer

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NO_NEW_PRIVS: Final = 38
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_OPEN_FILES: Final = 32


def main(arguments: list[str]) -> int:
    """Answer requests until the pipe closes; 0 when it does, 1 when the parent is already gone."""
    parent, memory = int(arguments[0]), int(arguments[1])
    if not _die_with(parent):
        return 1
    _limit(memory)
    # Whatever a library prints must not end up between two answers.
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    _serve(requests, answers)
    return 0


def _die_with(parent: int) -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # Few arenas and a fixed threshold hand the pixels back to the system after each photo.
    libc.mallopt(_M_ARENA_MAX, 2)
    libc.mallopt(_M_MMAP_THRESHOLD, 1 << 20)
    # The parent may have died before the first line above; then nobody would ever send the signal.
    return os.getppid() == parent


def _limit(memory: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, _OPEN_FILES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    # Two threads of libvips share decoding's colours and the turn; the encoders each have a thread of ours.
    os.environ["VIPS_CONCURRENCY"] = "2"


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    from services.processing import images  # only now: libvips reads its limits when it is loaded

    images.contain()
    answers.write(pack_answer(AnswerKind.STARTED, {}))
    answers.flush()
    while True:
        head = requests.read(REQUEST_HEAD.size)
        if len(head) < REQUEST_HEAD.size:
            return
        profile, length = REQUEST_HEAD.unpack(head)
        data = requests.read(length)
        if len(data) < length:
            return
        try:
            photo = images.render(data, profile)
        except ImageRefused as refusal:
            answers.write(pack_answer(AnswerKind.REFUSED, {"code": refusal.code.value}))
        except MemoryError:
            answers.write(pack_answer(AnswerKind.OUT_OF_MEMORY, {}))
            answers.flush()
            return
        except Exception as error:
            # The text of an exception can quote the photo; its type cannot.
            answers.write(pack_answer(AnswerKind.FAILED, {"error": type(error).__name__}))
        else:
            _write_photo(answers, photo)
            del photo
        del data
        answers.flush()


def _write_photo(answers: BinaryIO, photo: RenderedPhoto) -> None:
    head = {
        "width": photo.width,
        "height": photo.height,
        "images": [
            {"code": image.code, "width": image.width, "height": image.height, "bytes": len(image.data)}
            for image in photo.images
        ],
    }
    answers.write(pack_answer(AnswerKind.RENDERED, head))
    answers.writelines(image.data for image in photo.images)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
