"""Measures what one vCPU of this machine reads, tokenises and decodes for a model, about two minutes.

    pip install tokenizers pillow simplejpeg opencv-python-headless scikit-learn numpy
    python benchmarks/host_rates.py        # prints rows and writes benchmarks/results/host_rates_DATE.csv

Texts are Python's own documentation (`pydoc_data.topics`), cut to a number of tokens; the tokenizers (WordPiece and
byte-level BPE, 30,000 entries, Rust) are trained on the standard library's docstrings and comments. Pictures are the
two photographs that scikit-learn carries, mirrored side by side and cut to size, saved at a quality that gives about
0.6 bytes a pixel, as the photographs of ImageNet have. A rate is the best of three runs of at least a quarter second
of the process's own processor time, so that other work on the machine costs little (reading: of the clock); with
`processes` 2, two processes run at once and the row is their mean. `cold` files were dropped from the page cache.
"""

from __future__ import annotations

import argparse
import csv
import io
import mmap
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np  # after the variables that set how many threads it takes

RESULTS = Path(__file__).parent / "results"
RUN_S, RUNS = 0.25, 3
VOCABULARY = 30_000
LENGTHS = (16, 64, 128, 512, 2048)
PICTURES = ((500, 375), (1920, 1080))
BYTES_A_PIXEL = 0.6
CROP = 224
MEAN, DEVIATION = (np.array(three, np.float32) for three in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
FILE_BYTES = 512 * 2**20


@cache
def tokenizer(kind: str) -> Any:
    """Trained on the sources of the standard library: English of docstrings and comments, and code."""
    from tokenizers import BertWordPieceTokenizer, ByteLevelBPETokenizer

    folder = Path(os.__file__).parent
    texts = [path.read_text(errors="replace") for path in sorted(folder.glob("*.py")) if path.stat().st_size < 1e5][
        :120
    ]
    made = BertWordPieceTokenizer() if kind == "WordPiece" else ByteLevelBPETokenizer()
    made.train_from_iterator(texts, vocab_size=VOCABULARY, show_progress=False)
    return made


@cache
def texts(kind: str, tokens: int) -> tuple[str, ...]:
    """Pieces of prose of about so many tokens each."""
    from pydoc_data.topics import topics

    prose = " ".join(" ".join(topics.values()).split())
    words, made = prose.split(" "), tokenizer(kind)
    count = max(1, round(tokens * len(words) / len(made.encode(prose).ids)))
    cut = [" ".join(words[start : start + count]) for start in range(0, len(words) - count, count)]
    return tuple(cut[:256])


def tokenise(kind: str, tokens: int) -> Callable[[], int]:
    pieces, made = texts(kind, tokens), tokenizer(kind)
    inner = made._tokenizer  # its encode() takes no detour over Python

    def run() -> int:
        for piece in pieces:
            inner.encode(piece)
        return len(pieces)

    return run


def mean_tokens(kind: str, tokens: int) -> float:
    made = tokenizer(kind)
    return float(np.mean([len(made.encode(piece).ids) for piece in texts(kind, tokens)]))


@cache
def picture(width: int, height: int) -> bytes:
    """A JPEG of photographs, mirrored side by side so that no seam is sharp and no texture is smoothed."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    rows = [np.concatenate([one, one[:, ::-1]] * 2, axis=1) for one in load_sample_images().images]
    sheet = np.concatenate([rows[0], rows[0][::-1], rows[1], rows[1][::-1]], axis=0)
    cut = Image.fromarray(np.ascontiguousarray(sheet[200 : 200 + height, 100 : 100 + width]))
    for quality in range(98, 40, -2):
        out = io.BytesIO()
        cut.save(out, "JPEG", quality=quality)
        if out.tell() <= BYTES_A_PIXEL * width * height:
            return out.getvalue()
    raise ValueError("no quality gives so few bytes a pixel")


def _normalised(array: np.ndarray) -> np.ndarray:
    return ((array.astype(np.float32) / 255.0 - MEAN) / DEVIATION).transpose(2, 0, 1)


def decode(library: str, width: int, height: int, *, prepare: bool) -> Callable[[], int]:
    """`prepare`: also cut out, resized to 224 x 224 and normalised, as a training or a classifier takes them."""
    data = picture(width, height)
    inset = (width // 16, height // 16, width - width // 16, height - height // 16)
    if library == "pillow":
        from PIL import Image

        def run() -> int:
            image = Image.open(io.BytesIO(data)).convert("RGB")
            if prepare:
                _normalised(np.asarray(image.resize((CROP, CROP), Image.Resampling.BILINEAR, box=inset)))
            return 1

    else:
        import cv2
        import simplejpeg

        cv2.setNumThreads(1)
        left, top, right, bottom = inset

        def run() -> int:
            if library == "opencv":
                array = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
            else:
                array = simplejpeg.decode_jpeg(data)
            if prepare:
                _normalised(cv2.resize(array[top:bottom, left:right], (CROP, CROP)))
            return 1

    return run


def read_file(path: str, how: str, *, cold: bool) -> Callable[[], int]:
    def run() -> int:
        with open(path, "rb") as file:
            if cold:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if how == "read":
                while file.read(4 << 20):
                    pass
            else:
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                    np.frombuffer(mapped, np.uint64).sum()  # the array dies before the map is closed
        return FILE_BYTES

    return run


WORK: dict[str, Callable[..., Callable[[], int]]] = {
    "tokenise": tokenise, "decode": decode, "read": read_file,
}  # fmt: skip


def rate(name: str, args: tuple[Any, ...], options: dict[str, Any], _: int = 0) -> float:
    """Units a second, the best of three."""
    run = WORK[name](*args, **options)
    clock = time.perf_counter if name == "read" else time.process_time
    run()
    found = []
    for _run in range(RUNS):
        done, began = 0, clock()
        while (took := clock() - began) < RUN_S:
            done += run()
        found.append(done / took)
    return max(found)


def cases(path: str, only: str | None) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any], dict[str, Any]]]:
    for kind in ("WordPiece", "BPE") if only in (None, "tokenising") else ():
        for tokens in LENGTHS:
            about = {
                "stage": "tokenising", "what": kind, "library": f"tokenizers {version('tokenizers')}",
                "tokens": round(mean_tokens(kind, tokens), 1), "unit": "texts/s",
                "item_bytes": round(float(np.mean([len(piece) for piece in texts(kind, tokens)]))),
            }  # fmt: skip
            yield "tokenise", (kind, tokens), {}, about
    for width, height in PICTURES:
        for library, package in (
            ("pillow", "pillow"), ("simplejpeg", "simplejpeg"), ("opencv", "opencv-python-headless"),
        ):  # fmt: skip
            for prepare in (False, True):
                about = {
                    "stage": "JPEG decoding", "what": "decode, resize, normalise" if prepare else "decode",
                    "library": f"{package} {version(package)}", "width": width, "height": height,
                    "item_bytes": len(picture(width, height)), "unit": "pictures/s",
                }  # fmt: skip
                yield "decode", (library, width, height), {"prepare": prepare}, about
    for how, library in (("read", "Python file.read, 4 MiB"), ("mmap", f"mmap, numpy {version('numpy')}")):
        for cold in (False, True):
            about = {
                "stage": "reading", "what": "cold" if cold else "cached", "library": library, "unit": "bytes/s",
                "item_bytes": FILE_BYTES,
            }  # fmt: skip
            yield "read", (path, how), {"cold": cold}, about


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))


COLUMNS = (
    "stage", "what", "library", "tokens", "width", "height", "item_bytes", "processes", "rate", "unit", "processor",
    "vcpus", "python", "measured_on",
)  # fmt: skip


def _stored(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--date", default=date.today().isoformat())
    parser.add_argument("--only", help="one stage; rows of the others in the file stay")
    args = parser.parse_args()
    always = {
        "processor": processor(), "vcpus": os.cpu_count(), "python": sys.version.split()[0], "measured_on": args.date,
    }  # fmt: skip
    out = RESULTS / f"host_rates_{args.date}.csv"
    rows = [row for row in _stored(out) if args.only not in (None, row["stage"])]
    with tempfile.NamedTemporaryFile(dir=".") as file, ProcessPoolExecutor(2) as pool:
        block = np.random.default_rng(0).bytes(16 << 20)
        for _ in range(FILE_BYTES // len(block)):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        for name, work, options, about in cases(file.name, args.only):
            if args.only not in (None, about["stage"]):
                continue
            for processes in (1, 2):
                found = list(pool.map(rate, *zip(*[(name, work, options, n) for n in range(processes)], strict=True)))
                rows.append({**about, "processes": processes, "rate": round(sum(found) / len(found), 1), **always})
                print(" ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
