"""Pictures of a request: found, bounded, decoded beside the event loop, scaled as the model sees them."""

from __future__ import annotations

import asyncio
import base64
import binascii
import importlib
import io
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from numpy.typing import NDArray

from tonnage.errors import MissingExtra
from tonnage.features.pixels import View, fitted
from tonnage.serving.encoder.caching import Kept
from tonnage.serving.encoder.faults import BadPicture, BadRequest, Overloaded, PictureFormat, TooLarge, WrongShape
from tonnage.values import dataclass

FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP")  # PIL's names; of moving ones the first picture is seen
Given = bytes | NDArray[Any]  # a file's bytes; pixels (row, column, channel)


@dataclass(frozen=True, slots=True)
class Picture:
    """What the model sees of one picture, as bytes."""

    seen: NDArray[Any]  # (channel, row, column)

    @property
    def length(self) -> int:
        return 1

    @property
    def count(self) -> int:
        return 1


class PictureReader:
    """Files of pictures to what a model sees. `most_pixels`: of one picture, and of one scaled; `most_waiting`:
    pictures that may wait for their turn to be decoded."""

    def __init__(self, view: View, *, most_pixels: int, most_waiting: int) -> None:
        try:
            self._library: Any = importlib.import_module("PIL.Image")
        except ImportError as error:
            raise MissingExtra("serving a model of pictures", "serve") from error
        self.view, self.most_pixels, self.most_waiting = view, most_pixels, most_waiting
        self._threads = ThreadPoolExecutor(max_workers=os.cpu_count() or 1, thread_name_prefix="pictures")
        self._waiting = 0
        self._counts = threading.Lock()

    async def read_all(self, given: Sequence[Given], *, truncate: bool) -> list[Picture]:  # noqa: ARG002
        """The pictures of one request, in threads: as many are decoded at a time as there are cores.

        Raises Overloaded where too many wait for that, and the Fault of the first picture that cannot be used: the
        others of its request are then not begun. Each counts until its own decoding has ended, even where no request
        waits for it any more.
        """
        with self._counts:
            if self._waiting + len(given) > self.most_waiting:
                raise Overloaded(f"{self._waiting} pictures wait to be decoded, of at most {self.most_waiting}",
                                 retry_after_s=1.0, position=self._waiting + 1)  # fmt: skip
            self._waiting += len(given)
        works = [self._threads.submit(self.read, one, at) for at, one in enumerate(given)]
        for work in works:
            work.add_done_callback(self._decoded)
        try:
            return list(await asyncio.gather(*map(asyncio.wrap_future, works)))
        finally:
            for work in works:
                work.cancel()

    def _decoded(self, _: Future[Picture]) -> None:
        with self._counts:
            self._waiting -= 1

    @property
    def waiting(self) -> int:
        """Pictures that are being decoded or wait for it."""
        return self._waiting

    def key_parts(self, one: Given) -> Sequence[bytes]:
        """The bytes of the file; of pixels, their shape too."""
        return [one] if isinstance(one, bytes) else [str(one.shape).encode(), one.tobytes()]

    def kept(self, item: Picture, answer: Any) -> Sequence[Kept]:  # noqa: ARG002
        """Pictures have no tokens."""
        return [(answer, 0)]

    def read(self, given: Given, at: int) -> Picture:
        """One picture. Its size is looked at before a pixel is decoded: a small file can hold a huge picture."""
        where = f"images[{at}]"
        if not isinstance(given, bytes):
            self._check_size(given.shape[1], given.shape[0], where)
            return Picture(fitted(self._library.fromarray(given, "RGB"), self.view))
        try:
            with self._library.open(io.BytesIO(given), formats=FORMATS) as opened:
                width, height = opened.size
                self._check_size(width, height, where)
                return Picture(fitted(opened.convert("RGB"), self.view))
        except self._library.UnidentifiedImageError as error:
            raise PictureFormat(f"{where} is not a picture; read are {', '.join(FORMATS)}") from error
        except (self._library.DecompressionBombError, self._library.DecompressionBombWarning) as error:
            raise TooLarge(f"{where}: {error}") from error
        except (OSError, ValueError, SyntaxError, EOFError, IndexError, KeyError, TypeError, OverflowError) as error:
            # whatever PIL's readers raise for a file that is not as its beginning says
            raise BadPicture(f"{where} cannot be decoded: {error}") from error

    def _check_size(self, width: int, height: int, where: str) -> None:
        if width < 1 or height < 1:
            raise WrongShape(f"{where} has {width} x {height} pixels")
        across, down = self.view.scaled(width, height)
        if max(width * height, across * down) > self.most_pixels:
            scaled = f", {across:,} x {down:,} once scaled" if across * down > self.most_pixels else ""
            raise TooLarge(f"{where} has {width:,} x {height:,} pixels{scaled}; at most {self.most_pixels:,} are taken")


def picture_of(one: Any, where: str) -> bytes:
    """The bytes of a picture in base64, as it is or as a data URL."""
    if isinstance(one, bytes):
        return one
    if not isinstance(one, str):
        raise BadRequest(f"`{where}` is no picture in base64")
    head, comma, rest = one.partition(",")
    text = rest if comma and head.startswith("data:") and head.endswith(";base64") else one
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadPicture(f"`{where}` is no base64: {error}") from error
