"""Images of a data set: found, decoded and scaled as their model was made to see them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import DataError, InputError, MissingExtra
from tonnage.features.pixels import BICUBIC, SETTINGS, View, fitted
from tonnage.recipes.data.rows import DatasetRows
from tonnage.values import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

_HALF: Final = (0.5, 0.5, 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pixels:
    """What a model sees of an image: its centre, so many pixels wide and high, each channel about 0."""

    side: int
    mean: tuple[float, ...] = _HALF  # of values from 0 to 1
    sd: tuple[float, ...] = _HALF

    def save(self, folder: Path) -> None:
        """In the words of transformers' image processors."""
        size = {"height": self.side, "width": self.side}
        said = {
            "image_processor_type": "CLIPImageProcessor", "do_convert_rgb": True, "do_resize": True,
            "size": {"shortest_edge": self.side}, "resample": BICUBIC, "do_center_crop": True, "crop_size": size,
            "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": list(self.mean),
            "image_std": list(self.sd),
        }  # fmt: skip
        (folder / SETTINGS).write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")


def pixels_of(config: Any, folder: str | None) -> Pixels:
    """What a model of this config sees; mean and spread as the folder of its weights says (0.5 where it says nothing).

    InputError where no size of images is given.
    """
    said = _settings(folder)
    side = getattr(config, "image_size", None) or _side(said.get("crop_size")) or _side(said.get("size"))
    if not isinstance(side, int):
        raise InputError(
            "the model does not say how large an image is", hint="add `image_size` (pixels) to its config.json"
        )
    if getattr(config, "num_channels", 3) != 3:
        raise InputError(f"the model sees {config.num_channels} channels", hint="three (red, green, blue) are read")
    mean, sd = (tuple(said.get(name, _HALF)) for name in ("image_mean", "image_std"))
    return Pixels(side=side, mean=mean, sd=sd)


def _settings(folder: str | None) -> Mapping[str, Any]:
    if folder is None:
        return {}
    if folder.startswith("hf://"):
        from transformers.utils import cached_file

        found = cached_file(folder.removeprefix("hf://"), SETTINGS, _raise_exceptions_for_missing_entries=False)
        path = None if found is None else Path(found)
    else:
        path = Path(folder) / SETTINGS
    if path is None or not path.is_file():
        return {}
    settings: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return settings


def _side(size: Any) -> int | None:
    """The side that an image processor's size names, in any of its spellings."""
    if isinstance(size, Mapping):
        size = size.get("shortest_edge") or size.get("height")
    return size if isinstance(size, int) else None


class Images:
    """Samples whose images are decoded when they are asked for: no more of them is held than a batch.

    `sources`: a path or the bytes of each; `places`: its place, as an error names it.
    """

    def __init__(
        self, sources: Sequence[str | bytes], places: Sequence[str], labels: Sequence[int], pixels: Pixels
    ) -> None:
        self._sources, self._places, self._labels, self._pixels = sources, places, labels, pixels

    def __len__(self) -> int:
        return len(self._sources)

    def __getitem__(self, position: int) -> Mapping[str, Any]:
        seen = see(self._sources[position], self._places[position], self._pixels.side)
        return {"pixel_values": seen, "labels": self._labels[position]}

    @property
    def labels(self) -> Sequence[int]:
        return self._labels


def see(source: str | bytes, place: str, side: int) -> NDArray[Any]:
    """An image as (channel, row, column) of bytes: its shorter side scaled to `side`, its centre cut out."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise MissingExtra("reading images", "train") from error
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as opened:
            image = opened.convert("RGB")
    except (UnidentifiedImageError, OSError, ValueError) as error:
        name = "the image" if isinstance(source, bytes) else source
        raise DataError(f"{place}: {name} cannot be read: {error}", hint="replace the file, or remove it") from error
    return fitted(image, View(shorter=side, cut=(side, side)))


def find_images(rows: DatasetRows, column: str) -> tuple[list[str | bytes], list[str]]:
    """The images in a column, and the place of each. DataError names a row whose image is not there."""
    sources, places = [], []
    for position, value in enumerate(rows.column(column, "image")):
        place = rows.where(position)
        sources.append(image_at(value, place))
        places.append(place)
    return sources, places


def image_at(value: Any, place: str) -> str | bytes:
    """A path, made one that can be opened (from the file that names it), or the bytes of an image."""
    if isinstance(value, Mapping):  # as Hugging Face data sets and their Parquet files hold it
        value = value.get("bytes") or value.get("path")
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        found = "nothing" if value is None else type(value).__name__
        raise DataError(f"{place}: no image: found {found}", hint="a path, or the bytes of an image, is expected")
    file = place.rpartition(":")[0] or place.rpartition(", row ")[0]
    path = Path(value) if Path(value).is_absolute() else Path(file).parent / value
    if not path.is_file():
        raise DataError(f"{place}: there is no image {path}", hint="paths start from the file that names them")
    return str(path)
