"""One photograph to five outputs, in the decoding child, beside Node's sharp: time, CPU, bytes, quality, memory.

Targets (DESIGN §7): at most 0.5 of sharp's wall time and 0.65 of its CPU (one decode, effort 4, the same outputs from
memory), total bytes within 3 %, renditions' SSIM no lower, the master within 0.7 dB; worker and child together at most
450 MB over large photographs, without growth. Run as ``python -m tests.bench.pipeline``; installs sharp by name and
fails when it cannot. ``NINAKU_IMAGE_CORPUS`` adds the corpus's large photographs to the made one.
"""

import asyncio
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyvips

from libs.assets.rendition_profile import PROFILE_1
from services.processing.child import Decoder, DecoderLimits
from tests.bench.photographs import corpus_photographs, encoded, photograph

ROUNDS: Final = 3
ROUNDS_EACH: Final = 3
_ROOT: Final = Path(__file__).resolve().parents[2]
_FOLDER: Final = _ROOT / "build" / "bench"
_NAMES: Final = ("original", "p1-thumbnail", "p1-tile", "p1-card", "p1-detail")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Rounds:
    """What one candidate needed per photograph, and the outputs of its last round."""

    wall: list[float]
    cpu: list[float]
    outputs: dict[str, bytes]

    @property
    def total_bytes(self) -> int:
        """The weight of all outputs."""
        return sum(len(data) for data in self.outputs.values())


def install_sharp() -> str:
    """Install sharp below build/bench and return its version. Raises SystemExit when it cannot."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        sys.exit("the comparison needs Node and npm")
    _FOLDER.mkdir(parents=True, exist_ok=True)
    command = [npm, "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(_FOLDER), "sharp"]
    if subprocess.run(command, check=False).returncode != 0:
        sys.exit("sharp could not be installed")
    package = json.loads((_FOLDER / "node_modules" / "sharp" / "package.json").read_text(encoding="utf-8"))
    return str(package["version"])


def run_sharp(photo: Path) -> Rounds:
    """A few rounds of the same work in Node."""
    with tempfile.TemporaryDirectory(prefix="ninaku-bench-") as folder:
        script = Path(__file__).with_name("sharp_pipeline.mjs")
        answer = subprocess.run(
            ["node", str(script), str(photo), str(ROUNDS_EACH), folder],
            cwd=_FOLDER,
            check=True,
            stdout=subprocess.PIPE,
        )
        rounds = [json.loads(line) for line in answer.stdout.splitlines()]
        outputs = {name: Path(folder, f"{name}.webp").read_bytes() for name in _NAMES}
    return Rounds([each["wall"] for each in rounds], [each["cpu"] for each in rounds], outputs)


async def run_child(data: bytes) -> Rounds:
    """A few rounds through the decoding child, pipes and checks included."""
    decoder = Decoder(DecoderLimits())
    await decoder.render(data, PROFILE_1)
    wall, cpu = [], []
    outputs: dict[str, bytes] = {}
    for _ in range(ROUNDS_EACH):
        used, started = _cpu_seconds(decoder.pid) + time.process_time(), time.perf_counter()
        photo = await decoder.render(data, PROFILE_1)
        wall.append(time.perf_counter() - started)
        cpu.append(_cpu_seconds(decoder.pid) + time.process_time() - used)
        outputs = {image.code: image.data for image in photo.images}
    await decoder.close()
    return Rounds(wall, cpu, outputs)


def _cpu_seconds(pid: int | None) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _merged(parts: list[Rounds]) -> Rounds:
    return Rounds(
        [each for part in parts for each in part.wall], [each for part in parts for each in part.cpu], parts[-1].outputs
    )


def psnr(image: Any, reference: Any) -> float:
    """Peak signal-to-noise ratio in dB over all channels."""
    mean_square = ((image.cast("float") - reference.cast("float")) ** 2).avg()
    return 10 * math.log10(255.0**2 / max(mean_square, 1e-9))


def ssim(image: Any, reference: Any) -> float:
    """Mean structural similarity of the luma, Gaussian window of sigma 1.5."""
    one, other = (each.colourspace("b-w")[0].cast("float") for each in (image, reference))
    mean_one, mean_other = one.gaussblur(1.5), other.gaussblur(1.5)
    variance_one = (one * one).gaussblur(1.5) - mean_one * mean_one
    variance_other = (other * other).gaussblur(1.5) - mean_other * mean_other
    covariance = (one * other).gaussblur(1.5) - mean_one * mean_other
    first, second = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    top = (2 * mean_one * mean_other + first) * (2 * covariance + second)
    bottom = (mean_one * mean_one + mean_other * mean_other + first) * (variance_one + variance_other + second)
    return float((top / bottom).avg())


def _reference(source: Any, image: Any) -> Any:
    """The source at the size of a rendition: fitted, or cut where the rendition was cut."""
    if image.width != image.height or max(image.width, image.height) > 320:
        return source.resize(image.width / source.width, vscale=image.height / source.height)
    scale = image.width / min(source.width, source.height)
    whole = source.resize(scale).copy_memory()
    across, down = whole.width - image.width, whole.height - image.height
    places = [(x, y) for x in range(max(across, 0) + 1) for y in range(max(down, 0) + 1)]
    wanted = image.cast("float")
    best = min(places, key=lambda place: (whole.crop(*place, image.width, image.height) - wanted).abs().avg())
    return whole.crop(*best, image.width, image.height)


def compare(name: str, data: bytes) -> None:
    """Measure one photograph both ways, turn by turn, and print the ratios."""
    photo = _FOLDER / "photo.jpg"
    photo.write_bytes(data)
    ours, theirs = [], []
    for _ in range(ROUNDS):
        theirs.append(run_sharp(photo))
        ours.append(asyncio.run(run_child(data)))
    child, sharp = _merged(ours), _merged(theirs)
    source = pyvips.Image.jpegload_buffer(data).autorot()
    if source.get_typeof("icc-profile-data"):
        source = source.icc_transform("srgb", embedded=True, intent="relative")
    source = source.copy_memory()
    print(f"{name}: {source.width}x{source.height}, {len(data):,} bytes")
    for label, one, other, target in (
        ("wall", child.wall, sharp.wall, 0.5),
        ("CPU", child.cpu, sharp.cpu, 0.65),
    ):
        mine, peer = statistics.median(one), statistics.median(other)
        print(f"  {label:5} {mine:.2f} s, sharp {peer:.2f} s: {mine / peer:.2f} of sharp (target {target})")
    weight = child.total_bytes / sharp.total_bytes
    print(
        f"  bytes {child.total_bytes:,}, sharp {sharp.total_bytes:,}: {100 * (weight - 1):+.1f} % (target within 3 %)"
    )
    pictures = {
        code: tuple(pyvips.Image.webpload_buffer(each.outputs[code]).copy_memory() for each in (child, sharp))
        for code in _NAMES
    }
    mine_db, peer_db = (psnr(each, _reference(source, each)) for each in pictures["original"])
    print(f"  master {mine_db:.2f} dB, sharp {peer_db:.2f} dB: {mine_db - peer_db:+.2f} dB (target -0.7)")
    for code in _NAMES[1:]:
        mine_ssim, peer_ssim = (ssim(each, _reference(source, each)) for each in pictures[code])
        print(f"  {code} SSIM {mine_ssim:.4f}, sharp {peer_ssim:.4f}: {mine_ssim - peer_ssim:+.4f} (target no lower)")


MEMORY_WORKER: Final = """
import asyncio, sys
import services.processing.worker
from services.processing.child import Decoder, DecoderLimits
async def main():
    decoder = Decoder(DecoderLimits())
    await decoder.start()
    print(decoder.pid, flush=True)
    for path in sys.argv[1:]:
        for _ in range(5):
            with open(path, "rb") as file:
                await decoder.render(file.read(), 1)
            print("round", flush=True)
    await decoder.close()
asyncio.run(main())
"""


def measure_memory(files: dict[str, Path]) -> None:
    """Resident memory of a worker and its child over five rounds of each file, sampled every 5 ms."""
    process = subprocess.Popen(
        [sys.executable, "-c", MEMORY_WORKER, *(str(path) for path in files.values())],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    pids = (process.pid, int(process.stdout.readline()))
    peak = [0]
    done = threading.Event()

    def sample() -> None:
        while not done.is_set():
            peak[0] = max(peak[0], sum(_resident_mib(pid) for pid in pids))
            time.sleep(0.005)

    sampler = threading.Thread(target=sample)
    sampler.start()
    highest = 0
    for name in files:
        peaks = []
        for _ in range(5):
            peak[0] = 0
            if not process.stdout.readline():
                sys.exit(f"the child failed on {name}")
            peaks.append(peak[0])
        highest = max(highest, *peaks)
        print(f"  {name}: {', '.join(str(each) for each in peaks)} MiB")
    done.set()
    sampler.join()
    process.wait()
    print(f"  highest {highest} MiB, {highest * 1.048576:.0f} MB (target 450 MB)")


def _resident_mib(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in status.splitlines() if line.startswith("VmRSS:")), 0)


def main() -> None:
    """Measure and print."""
    version = install_sharp()
    print(f"image pipeline beside sharp {version}")
    photos = {"made photograph": encoded(photograph(4000, 3000), "JPEG", quality=88), **corpus_photographs()}
    for name, data in photos.items():
        compare(name, data)
    print("memory of a worker and its child, five rounds each")
    large = photograph(8000, 5000)
    files = {
        "12 MP JPEG": encoded(large.resize((4000, 3000)), "JPEG", quality=88),
        "40 MP JPEG": encoded(large, "JPEG", quality=60),
        "40 MP PNG": encoded(large.quantize(16), "PNG"),
        "12 MP AVIF": encoded(large.resize((4000, 3000)), "AVIF", quality=60, speed=9),
    }
    paths = {}
    for number, (name, data) in enumerate(files.items()):
        paths[name] = _FOLDER / f"large-{number}"
        paths[name].write_bytes(data)
    measure_memory(paths)


if __name__ == "__main__":
    main()
