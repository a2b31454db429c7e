"""Number formats of served models: the rate that they multiply at, and bytes of weights, activations and cache."""

from __future__ import annotations

from tonnage.sizing.engines import Engine
from tonnage.sizing.precision import EXPERT_WEIGHT_BYTES
from tonnage.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFormat:
    """What a served precision means: the key of the rate it multiplies at, and bytes of each kind of element."""

    compute: str
    element_bytes: float
    weight_bytes: float
    kv_bytes: float
    expert_weight_bytes: float = 0.0  # of the experts of a mixture; 0: as the rest
    cache_readings: float = 1.0  # of keys and values in a decode step

    @property
    def low_bit(self) -> bool:
        """Multiplies at 8 bits."""
        return self.compute in ("int8", "fp8")

    def expanded(self, weight_bytes: float) -> bool:
        """Whether weights held so are narrower than what is multiplied."""
        return weight_bytes < (1.0 if self.low_bit else self.element_bytes)

    @property
    def expert_bytes(self) -> float:
        """Bytes of one weight of an expert."""
        return self.expert_weight_bytes or self.weight_bytes

    def read_bytes(self, weight_bytes: float, engine: Engine) -> float:
        """What kernels of `engine` read and write for one weight held so."""
        return weight_bytes + (engine.dequantise_bytes if self.expanded(weight_bytes) else 0.0)


FORMATS = {
    "fp32": ServedFormat(compute="fp32", element_bytes=4, weight_bytes=4, kv_bytes=4),
    "tf32": ServedFormat(compute="tf32", element_bytes=4, weight_bytes=4, kv_bytes=4),
    "fp16": ServedFormat(compute="fp16", element_bytes=2, weight_bytes=2, kv_bytes=2),
    "bf16": ServedFormat(compute="bf16", element_bytes=2, weight_bytes=2, kv_bytes=2),
    "fp8": ServedFormat(compute="fp8", element_bytes=2, weight_bytes=1, kv_bytes=2),
    "fp8-weight-only": ServedFormat(compute="fp16", element_bytes=2, weight_bytes=1, kv_bytes=2),
    "int8": ServedFormat(compute="int8", element_bytes=1, weight_bytes=1, kv_bytes=2),
    "int4": ServedFormat(compute="fp16", element_bytes=2, weight_bytes=0.5 + 2 / 128, kv_bytes=2),
    "mxfp4": ServedFormat(
        compute="bf16", element_bytes=2, weight_bytes=2, kv_bytes=2, expert_weight_bytes=EXPERT_WEIGHT_BYTES["mxfp4"]
    ),
}
