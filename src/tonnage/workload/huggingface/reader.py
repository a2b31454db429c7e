"""Typed access to one `config.json`: a wrong or missing key is an error naming file, key and expectation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tonnage.errors import WorkloadError
from tonnage.values import dataclass

LARGEST = 10**9  # no width, depth or vocabulary comes near it; a larger figure is a typing error


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReader:
    """The keys of one configuration.

    `defaults` are the values transformers itself assumes for keys that its files leave out; a key that is
    neither in the file nor there is an error. A default that starts with `=` names another key to copy.
    """

    values: Mapping[str, Any]
    defaults: Mapping[str, Any]
    name: str
    file: str | None

    def error(self, key: str, message: str, hint: str | None = None) -> WorkloadError:
        """An error about `key`, with a hint where its value is one that transformers assumes."""
        if hint is None and key in self.defaults and not self.has(key):
            hint = f"the file leaves '{key}' out, and transformers then assumes {shown(self.defaults[key])}"
        return WorkloadError(message, file=self.file or self.name, key=key, hint=hint)

    def get(self, key: str) -> Any:
        """The value in the file, else the documented default; null counts as left out."""
        value = self.values.get(key)
        if value is not None:
            return value
        if key in self.defaults:
            default = self.defaults[key]
            return self.get(default[1:]) if isinstance(default, str) and default.startswith("=") else default
        raise self.error(
            key,
            "is missing" if key not in self.values else "is null",
            f"transformers assumes no value for '{key}' that could stand in; give it, or an inline shape",
        )

    def integer(self, key: str, *, minimum: int = 1) -> int:
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, f"{shown(value)} is not a whole number; expected {minimum} or more")
        if not minimum <= value <= LARGEST:
            raise self.error(key, f"{shown(value)} is out of range; expected {minimum} to {LARGEST:,}")
        return value

    def flag(self, key: str) -> bool:
        value = self.get(key)
        if not isinstance(value, bool):
            raise self.error(key, f"{shown(value)} is not true or false")
        return value

    def choice(self, key: str, choices: Sequence[str]) -> str:
        value = self.get(key)
        if not isinstance(value, str) or value not in choices:
            raise self.error(key, f"{shown(value)} is unknown here; expected {' or '.join(choices)}")
        return value

    def integers(self, key: str, *, longest: int, minimum: int = 1) -> tuple[int, ...]:
        value = self.get(key)
        if not isinstance(value, list) or not 1 <= len(value) <= longest:
            raise self.error(key, f"{shown(value)} is not a list of 1 to {longest} whole numbers")
        return tuple(self.with_value(key, part).integer(key, minimum=minimum) for part in value)

    def window(self, key: str = "sliding_window") -> int:
        """An attention window in tokens, 0 for none: there, unlike elsewhere, a null is a value."""
        if key in self.values and not self.has(key):
            return 0
        return self.integer(key, minimum=0)

    def has(self, key: str) -> bool:
        return self.values.get(key) is not None

    def with_value(self, key: str, value: Any) -> ConfigReader:
        """The same configuration with one key replaced, to check a part of a value under its own key."""
        return ConfigReader(values={**self.values, key: value}, defaults={}, name=self.name, file=self.file)

    def section(self, key: str) -> ConfigReader:
        """A nested object as a reader of its own (`attn_config` of MPT); absent counts as empty."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.error(key, f"{shown(value)} is not an object")
        return ConfigReader(values=value or {}, defaults=self.defaults, name=self.name, file=self.file)

    def nested(self, key: str, defaults: Mapping[str, Any], *, flat: bool = False) -> ConfigReader:
        """The configuration of a network of its own inside this one; `flat`: its keys may be here instead."""
        inner = self.section(key) if self.has(key) else self
        if inner is self and not flat:
            raise self.error(key, "is missing", "a model of several networks has the configuration of each")
        own = {**inner.values, "architectures": self.values.get("architectures")}
        return ConfigReader(values=own, defaults=defaults, name=self.name, file=self.file)

    def divided(self, key: str, by: str, parts: int) -> int:
        """`key` divided by the figure under `by`, which must divide it."""
        whole = self.integer(key)
        if whole % parts:
            raise self.error(key, f"{whole} does not divide by `{by}` = {parts}")
        return whole // parts


def shown(value: Any) -> str:
    """A value as the file has it, short enough for a message."""
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, lists in lists in lists
        return "a value too long to print"
    return text if len(text) <= 60 else f"{text[:57]}..."


def stack_sizes(config: ConfigReader) -> dict[str, Any]:
    """Layers, widths and heads of an encoder, under the names that most configurations use."""
    heads = config.integer("num_attention_heads")
    return {
        "layers": config.integer("num_hidden_layers"),
        "hidden": config.integer("hidden_size"),
        "heads": heads,
        "head_dim": config.divided("hidden_size", "num_attention_heads", heads),
        "ffn": config.integer("intermediate_size"),
    }
