"""Settings, built once at the edge: flag, then `TONNAGE_*`, then `tonnage.toml`, then the default."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final, Literal, cast

from tonnage.errors import InputError, did_you_mean, nearest
from tonnage.values import dataclass

FILE_NAME: Final = "tonnage.toml"
OutputFormat = Literal["table", "json", "csv", "md", "html"]
ColorMode = Literal["auto", "always", "never"]
OUTPUTS: Final[tuple[OutputFormat, ...]] = ("table", "json", "csv", "md", "html")
COLORS: Final[tuple[ColorMode, ...]] = ("auto", "always", "never")
DEFAULT_MAX_PRICE_AGE_DAYS: Final = 180
LARGEST_FILE_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting, resolved. `origins` says for each where its value came from."""

    home: Path  # snapshots, runs and the database live here
    catalog: Path | None  # a catalog snapshot; None: the newest at home, else the built-in one
    facts: Path | None  # a folder of measured tables
    calibration: Path | None = None  # a calibration file; None: the packaged one
    output: OutputFormat
    color: ColorMode
    as_of: datetime | None  # the clock, with its time zone; None: now
    max_price_age_days: int
    database_url: str
    origins: tuple[tuple[str, str], ...] = ()

    def origin(self, name: str) -> str:
        """Where a value came from: `flag --home`, `TONNAGE_HOME`, `/path/tonnage.toml:3`, or `default`."""
        return dict(self.origins)[name]

    @property
    def today(self) -> date:
        """The day of the clock."""
        return (self.as_of or datetime.now(UTC)).date()

    def shown(self, name: str) -> str:
        """A value as `tonnage config show` prints it: a password in a URL is hidden."""
        value = getattr(self, name)
        if name == "database_url":
            return re.sub(r"(://[^:/@]*):.*@", r"\1:***@", value)
        return "" if value is None else value.isoformat() if isinstance(value, datetime) else str(value)


SETTING_NAMES: Final = tuple(field.name for field in fields(Settings) if field.name != "origins")


@dataclass(frozen=True, slots=True)
class _Found:
    """A value as given, where, and the folder its relative path starts from."""

    value: Any
    origin: str
    folder: Path


def load_settings(flags: Mapping[str, Any], environ: Mapping[str, str], cwd: Path) -> Settings:
    """The settings as of now: reads the nearest `tonnage.toml` from `cwd` upward and the one at home.

    A flag of None was not given; an empty variable counts as unset. InputError names the flag, variable or
    file, line and key of a value that cannot be used.
    """
    unknown = sorted(set(flags) - set(SETTING_NAMES))
    if unknown:
        raise InputError(f"no setting is named '{unknown[0]}'", hint=f"settings: {', '.join(SETTING_NAMES)}")
    near = [_from_flags(flags, cwd), _from_environment(environ, cwd), _from_project(cwd)]
    home = _find("home", near) or _Found(_default_home(), "default", cwd)
    at_home = home.value / FILE_NAME
    layers = [*near, _read_toml(at_home, allow_home=False) if _is_file(at_home) else {}]
    found = {"home": home}
    for name, default in _defaults(home.value).items():
        found[name] = _find(name, layers) or _Found(default, "default", cwd)
    values = {name: entry.value for name, entry in found.items()}
    return Settings(**values, origins=tuple((name, found[name].origin) for name in SETTING_NAMES))


def current_settings(**given: Any) -> Settings:
    """The settings of this process: what is `given`, its environment, the files from its folder upward."""
    return load_settings(given, os.environ, Path.cwd())


def _find(name: str, layers: list[dict[str, _Found]]) -> _Found | None:
    for layer in layers:
        if name in layer:
            entry = layer[name]
            return _Found(_read_value(name, entry), entry.origin, entry.folder)
    return None


def _default_home() -> Path:
    from platformdirs import user_data_path

    return user_data_path("tonnage", appauthor=False)


def _defaults(home: Path) -> dict[str, Any]:
    return {
        "catalog": None,
        "facts": None,
        "calibration": None,
        "output": "table",
        "color": "auto",
        "as_of": None,
        "max_price_age_days": DEFAULT_MAX_PRICE_AGE_DAYS,
        "database_url": f"sqlite:///{(home / 'tonnage.db').as_posix()}",
    }


def _from_flags(flags: Mapping[str, Any], cwd: Path) -> dict[str, _Found]:
    return {
        name: _Found(value, f"flag --{name.replace('_', '-')}", cwd)
        for name, value in flags.items()
        if value is not None
    }


def _from_environment(environ: Mapping[str, str], cwd: Path) -> dict[str, _Found]:
    variables = {name: f"TONNAGE_{name.upper()}" for name in SETTING_NAMES}
    found = {
        name: _Found(environ[variable], variable, cwd) for name, variable in variables.items() if environ.get(variable)
    }
    if environ.get("NO_COLOR") and "color" not in found:  # https://no-color.org
        found["color"] = _Found("never", "NO_COLOR", cwd)
    return found


def _from_project(cwd: Path) -> dict[str, _Found]:
    for folder in (cwd, *cwd.parents):
        if _is_file(folder / FILE_NAME):
            return _read_toml(folder / FILE_NAME, allow_home=True)
    return {}


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder that may not be entered holds no settings for us
        return False


def _read_toml(path: Path, *, allow_home: bool) -> dict[str, _Found]:
    text = _read_text(path)
    try:
        entries = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not valid TOML: {error}", hint='write lines such as output = "json"') from error
    found = {}
    for name, value in entries.items():
        origin = f"{path}:{_line_of(name, text)}"
        if name not in SETTING_NAMES:
            hint = did_you_mean(nearest(name, SETTING_NAMES, count=1), f"settings: {', '.join(SETTING_NAMES)}")
            raise InputError(f"{origin}: unknown key '{name}'", hint=hint)
        if name == "home" and not allow_home:
            raise InputError(f"{origin}: `home` cannot be set by the file at home", hint="set TONNAGE_HOME")
        found[name] = _Found(value, origin, path.parent)
    return found


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            raw = stream.read(LARGEST_FILE_BYTES + 1)
        if len(raw) > LARGEST_FILE_BYTES:
            raise InputError(f"{path}: is over 1 MB", hint="settings are a few lines; is this the right file?")
        return raw.decode("utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", hint="check its permissions") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text", hint="save it as UTF-8") from error


def _line_of(name: str, text: str) -> int:
    """The line a top-level key or table starts on (tomllib keeps no marks); 1 where it is not known."""
    start = re.compile(rf"\s*\[*\s*[\"']?{re.escape(name)}[\"']?\s*[=.\]]")
    return next((number for number, line in enumerate(text.splitlines(), 1) if start.match(line)), 1)


def _read_value(name: str, entry: _Found) -> Any:
    readers: dict[str, Callable[[_Found], Any]] = {
        "home": _read_path,
        "catalog": _read_path,
        "facts": _read_path,
        "calibration": _read_path,
        "output": lambda found: _read_choice(found, OUTPUTS),
        "color": lambda found: _read_choice(found, COLORS),
        "as_of": _read_instant,
        "max_price_age_days": _read_days,
        "database_url": _read_url,
    }
    try:
        return readers[name](entry)
    except ValueError as error:
        key = f" `{name}`:" if FILE_NAME in entry.origin else ""
        shown = "a value" if name == "database_url" else repr(entry.value)[:80]
        raise InputError(f"{entry.origin}:{key} found {shown}, expected {error}", hint=_hint(name, entry)) from None


def _hint(name: str, entry: _Found) -> str:
    choices: tuple[str, ...] = {"output": OUTPUTS, "color": COLORS}.get(name, ())
    return did_you_mean(nearest(str(entry.value), choices, count=1), "docs/settings.md describes every setting")


def _read_path(entry: _Found) -> Path:
    if not isinstance(entry.value, (str, Path)) or not str(entry.value) or "\0" in str(entry.value):
        raise ValueError("a path")
    try:
        path = Path(entry.value).expanduser()
    except RuntimeError:
        raise ValueError("a path (no home folder is known for its '~')") from None
    return path if path.is_absolute() else entry.folder / path


def _read_choice(entry: _Found, choices: tuple[str, ...]) -> str:
    if entry.value not in choices:
        raise ValueError(f"one of {', '.join(choices)}")
    return cast(str, entry.value)


def _read_days(entry: _Found) -> int:
    value = entry.value
    if isinstance(value, str) and re.fullmatch(r"\d{1,6}", value, re.ASCII):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 36_500:
        raise ValueError("a whole number of days, 1 to 36500")
    return value


def _read_url(entry: _Found) -> str:
    if not isinstance(entry.value, str) or not re.match(r"[a-z][a-z0-9+]*://", entry.value):
        raise ValueError("a database URL such as sqlite:////path/tonnage.db or postgresql://user@host/name")
    return entry.value


def _read_instant(entry: _Found) -> datetime:
    """An instant with its zone, or a date (00:00 UTC)."""
    value = entry.value
    expected = "an instant with its time zone, such as 2026-12-01T00:00Z, or a date"
    if isinstance(value, str):
        try:
            value = date.fromisoformat(value) if len(value) == 10 else datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(expected) from None
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise ValueError(f"{expected}; this one names no time zone")
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    raise ValueError(expected)


def describe_settings(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """(name, value as shown, origin) of every setting, in the order of `Settings`."""
    for name in SETTING_NAMES:
        yield name, settings.shown(name), settings.origin(name)
