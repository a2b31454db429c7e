"""How a picture becomes what a model sees: scaled, cut, each channel about 0, as its folder's settings say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import InputError, MissingExtra
from tonnage.values import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

SETTINGS: Final = "preprocessor_config.json"  # beside weights: the settings of transformers' image processors
BILINEAR: Final = 2  # PIL's numbers
BICUBIC: Final = 3
_PROCESSORS: Final = {  # of transformers: what resamples and cuts where its settings do not say
    "CLIP": (BICUBIC, True), "ViT": (BILINEAR, False), "DeiT": (BICUBIC, True), "Bit": (BICUBIC, True),
    "ConvNext": (BICUBIC, False), "Siglip": (BICUBIC, False), "Beit": (BICUBIC, False),
    "MobileNetV2": (BILINEAR, True),
}  # fmt: skip
_SUFFIXES: Final = ("ImageProcessorPil", "ImageProcessorFast", "ImageProcessor", "FeatureExtractor")
_BY_SHORTER: Final = frozenset({"CLIP", "Bit", "ConvNext", "MobileNetV2"})  # a size in one number is the shorter side's
CONVNEXT_WHOLE: Final = 384  # pixels: from here on ConvNeXt sees the whole picture, below its centre
Size = tuple[int, int]  # rows, columns


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a model sees of a picture. `shorter`: its shorter side scaled to this; else the whole scaled to `whole`.
    `cut`: then its centre. A value v of 0 to 255 becomes (v * factor - mean) / sd of its channel."""

    shorter: int | None = None
    whole: Size | None = None
    cut: Size | None = None
    resample: int = BICUBIC
    factor: float = 1 / 255
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    sd: tuple[float, ...] = (1.0, 1.0, 1.0)

    @property
    def size(self) -> Size:
        """Rows and columns of what is seen."""
        found = self.cut or self.whole
        assert found is not None  # `read_view` cuts what is scaled by one side
        return found

    def scaled(self, width: int, height: int) -> tuple[int, int]:
        """Width and height to which a picture of this size is scaled, rounded down as transformers does."""
        if self.shorter is not None:
            least = min(width, height)
            return self.shorter * width // least, self.shorter * height // least
        return (width, height) if self.whole is None else (self.whole[1], self.whole[0])

    def values(self, seen: NDArray[Any]) -> NDArray[Any]:
        """(pictures, channel, row, column) of bytes as the numbers that the model takes."""
        import numpy as np

        mean, sd = (np.asarray(one, dtype=np.float32).reshape(1, 3, 1, 1) for one in (self.mean, self.sd))
        found: NDArray[Any] = (seen.astype(np.float32) * np.float32(self.factor) - mean) / sd
        return found


def fitted(picture: Image, view: View) -> NDArray[Any]:
    """A picture in RGB as (channel, row, column) of bytes, scaled and cut; what is cut beyond its edge is black."""
    import numpy as np

    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtra("reading images", "train") from error
    width, height = view.scaled(*picture.size)
    if (width, height) != picture.size:
        picture = picture.resize((width, height), Image.Resampling(view.resample))
    if view.cut is not None:
        rows, columns = view.cut
        left, top = (width - columns) // 2, (height - rows) // 2
        picture = picture.crop((left, top, left + columns, top + rows))
    return np.asarray(picture).transpose(2, 0, 1).copy()


def read_view(said: Mapping[str, Any]) -> View:
    """The view that the settings of a transformers image processor describe.

    InputError for a processor or a size that is not known here: to see a picture in another way gives other answers.
    """
    kind = str(said.get("image_processor_type") or said.get("feature_extractor_type"))
    name = next((kind.removesuffix(end) for end in _SUFFIXES if kind.endswith(end)), kind)
    if name not in _PROCESSORS:
        raise InputError(f"pictures of a {kind} are not served",
                         hint=f"those of {', '.join(f'{one}ImageProcessor' for one in _PROCESSORS)} are")  # fmt: skip
    resample, cuts = _PROCESSORS[name]
    mean, sd = (
        (said.get("image_mean"), said.get("image_std")) if said.get("do_normalize", True) else ((0,) * 3, (1,) * 3)
    )
    if not mean or not sd or len(mean) != 3 or len(sd) != 3:
        raise InputError("the settings of the pictures have no `image_mean` and `image_std` of three channels")
    factor = float(said.get("rescale_factor", 1 / 255)) if said.get("do_rescale", True) else 1.0
    view = View(factor=factor, mean=tuple(mean), sd=tuple(sd), resample=int(said.get("resample", resample)),
                **_sizes(said, name, cuts))  # fmt: skip
    if view.cut is None and view.whole is None:
        raise InputError("the settings of the pictures do not say how large one is", hint="`size` and `crop_size` do")
    return view


def _sizes(said: Mapping[str, Any], name: str, cuts: bool) -> dict[str, Any]:
    size = said.get("size") if said.get("do_resize", True) else None
    if isinstance(size, int) and name not in _BY_SHORTER:
        size = {"height": size, "width": size}
    shorter = size if isinstance(size, int) else size.get("shortest_edge") if size else None
    whole = (size["height"], size["width"]) if isinstance(size, Mapping) and "height" in size else None
    if name == "ConvNext" and shorter is not None:
        if shorter >= CONVNEXT_WHOLE:
            return {"whole": (shorter, shorter)}
        return {"shorter": int(shorter / said.get("crop_pct", 224 / 256)), "cut": (shorter, shorter)}
    cut = said.get("crop_size") if said.get("do_center_crop", cuts) else None
    cut = {"height": cut, "width": cut} if isinstance(cut, int) else cut
    return {"shorter": shorter, "whole": whole, "cut": (cut["height"], cut["width"]) if cut else None}
