"""Settings: flag, then variable, then tonnage.toml, then default; each value says where it came from."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tonnage.errors import InputError
from tonnage.settings import SETTING_NAMES, Settings, describe_settings, load_settings


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder, so that no test reads the user's own."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project folder, with a folder two levels down to work in."""
    folder = tmp_path / "project"
    (folder / "a" / "b").mkdir(parents=True)
    return folder


def load(home: Path, cwd: Path, flags: dict[str, Any] | None = None, **environ: str) -> Settings:
    return load_settings(flags or {}, {"TONNAGE_HOME": str(home), **environ}, cwd)


def test_each_layer_yields_to_the_one_before(home: Path, project: Path) -> None:
    """Flag, variable, the project's file, the file at home, default: the first wins and is the origin."""
    cwd = project / "a" / "b"
    seen = [load(home, cwd)]
    (home / "tonnage.toml").write_text('output = "csv"\n')
    seen.append(load(home, cwd))
    (project / "tonnage.toml").write_text('# mine\noutput = "md"\n')
    seen.append(load(home, cwd))
    seen.append(load(home, cwd, TONNAGE_OUTPUT="html"))
    seen.append(load(home, cwd, {"output": "json", "color": None}, TONNAGE_OUTPUT="html"))
    assert [(settings.output, settings.origin("output")) for settings in seen] == [
        ("table", "default"),
        ("csv", f"{home / 'tonnage.toml'}:1"),
        ("md", f"{project / 'tonnage.toml'}:2"),
        ("html", "TONNAGE_OUTPUT"),
        ("json", "flag --output"),
    ]
    assert seen[-1].origin("color") == "default"


def test_the_nearest_file_upward_counts_alone(home: Path, project: Path) -> None:
    """A nearer tonnage.toml hides one further up, but not the one at home."""
    (home / "tonnage.toml").write_text('color = "never"\n')
    (project / "tonnage.toml").write_text("max_price_age_days = 5\n")
    (project / "a" / "tonnage.toml").write_text('output = "md"\n')
    settings = load(home, project / "a" / "b")
    assert (settings.output, settings.max_price_age_days, settings.color) == ("md", 180, "never")


def test_defaults(home: Path, project: Path) -> None:
    """With nothing set the database lies at home and every limit has its default."""
    assert load(home, project) == Settings(
        home=home,
        catalog=None,
        facts=None,
        output="table",
        color="auto",
        as_of=None,
        max_price_age_days=180,
        database_url=f"sqlite:///{home.as_posix()}/tonnage.db",
        origins=tuple((name, "TONNAGE_HOME" if name == "home" else "default") for name in SETTING_NAMES),
    )


def test_without_a_home_the_platform_says_where(project: Path) -> None:
    """The default home is the platform's data folder for tonnage."""
    settings = load_settings({}, {}, project)
    assert settings.home.is_absolute()
    assert "tonnage" in settings.home.parts[-1]
    assert settings.origin("home") == "default"


def test_relative_paths_start_where_they_were_written(home: Path, project: Path) -> None:
    """A path in tonnage.toml starts from that file; one in a flag or variable from the working directory."""
    (project / "tonnage.toml").write_text('facts = "tables"\ncatalog = "snap"\nhome = "elsewhere"\n')
    settings = load_settings({"catalog": "mine"}, {}, project / "a")
    assert settings.facts == project / "tables"
    assert settings.catalog == project / "a" / "mine"
    assert settings.home == project / "elsewhere"
    assert load(home, project, TONNAGE_FACTS="f").facts == project / "f"


AS_OF = [
    ("2026-11-20T12:00Z", datetime(2026, 11, 20, 12, tzinfo=UTC)),
    ("2026-11-20T14:00+02:00", datetime(2026, 11, 20, 12, tzinfo=UTC)),
    ("2026-11-20", datetime(2026, 11, 20, tzinfo=UTC)),
]


@pytest.mark.parametrize(("written", "instant"), AS_OF)
def test_the_clock_is_the_same_from_text_and_toml(home: Path, project: Path, written: str, instant: datetime) -> None:
    """An instant or a date (00:00 UTC) may stand in a variable as text and in TOML as its own type."""
    assert load(home, project, TONNAGE_AS_OF=written).as_of == instant
    (project / "tonnage.toml").write_text(
        f"as_of = {written.replace('T12:00Z', 'T12:00:00Z')}\n".replace("14:00+", "14:00:00+")
    )
    assert load(home, project).as_of == instant


def test_no_color_is_honoured_below_our_own_variable(home: Path, project: Path) -> None:
    """NO_COLOR with any value but empty turns colour off, unless TONNAGE_COLOR or a flag says otherwise."""
    assert load(home, project, NO_COLOR="1").color == "never"
    assert load(home, project, NO_COLOR="1").origin("color") == "NO_COLOR"
    assert load(home, project, NO_COLOR="").color == "auto"
    assert load(home, project, NO_COLOR="1", TONNAGE_COLOR="always").color == "always"
    assert load(home, project, {"color": "auto"}, NO_COLOR="1").color == "auto"


def test_a_password_is_not_shown(home: Path, project: Path) -> None:
    """`config show` hides the password of a database URL; the value itself keeps it."""
    url = "postgresql://me:se@cret@host/tonnage"
    settings = load(home, project, TONNAGE_DATABASE_URL=url)
    assert settings.database_url == url
    assert settings.shown("database_url") == "postgresql://me:***@host/tonnage"
    shown = {name: (value, origin) for name, value, origin in describe_settings(settings)}
    assert set(shown) == set(SETTING_NAMES)
    assert shown["database_url"] == ("postgresql://me:***@host/tonnage", "TONNAGE_DATABASE_URL")
    assert shown["as_of"] == ("", "default")


BAD_TOML = [  # content, what the error says after the file, hint
    ('output = "json"\nouput = "csv"\n', ":2: unknown key 'ouput'", "'output'"),
    ("[plan]\nx = 1\n", ":1: unknown key 'plan'", "settings: home"),
    ('output = "xml"\n', ":1: `output`: found 'xml', expected one of table", "docs/settings.md"),
    ("\ncolor = true\n", ":2: `color`: found True, expected one of auto", "docs/settings.md"),
    ("max_price_age_days = 0\n", ":1: `max_price_age_days`: found 0, expected a whole number", ""),
    ("max_price_age_days = true\n", ":1: `max_price_age_days`: found True", ""),
    ("max_price_age_days = 1.5\n", ":1: `max_price_age_days`: found 1.5", ""),
    ("max_price_age_days = nan\n", ":1: `max_price_age_days`: found nan", ""),
    ('home = ""\n', ":1: `home`: found '', expected a path", ""),
    ("facts = 5\n", ":1: `facts`: found 5, expected a path", ""),
    ("as_of = 2026-11-20T12:00:00\n", "names no time zone", ""),
    ("as_of = 12:00:00\n", ":1: `as_of`", ""),
    ('database_url = "me:secret@host"\n', ":1: `database_url`: found a value, expected a database URL", ""),
    ("output = \n", ": not valid TOML: ", 'output = "json"'),
    ("output = 'a'\noutput = 'b'\n", ": not valid TOML: ", ""),
    ("# " + "x" * 2**20 + "\n", ": is over 1 MB", ""),
]


@pytest.mark.parametrize(("content", "says", "hint"), BAD_TOML)
def test_a_bad_file_is_told_with_file_line_and_key(project: Path, content: str, says: str, hint: str) -> None:
    """Unknown keys, other types, values out of range: an error with file, line and (syntax aside) key."""
    (project / "tonnage.toml").write_text(content)
    with pytest.raises(InputError) as caught:
        load_settings({}, {}, project)
    assert str(project / "tonnage.toml") in str(caught.value)
    assert says in str(caught.value)
    assert hint in (caught.value.hint or "")
    assert "secret" not in str(caught.value)


def test_a_file_that_is_not_text_is_reported(home: Path, project: Path) -> None:
    """Bytes that are not UTF-8 name the file."""
    (project / "tonnage.toml").write_bytes(b"output = '\xff'")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        load(home, project)


def test_the_file_at_home_cannot_move_home(home: Path, project: Path) -> None:
    """It was found there, so it cannot say that home is elsewhere."""
    (home / "tonnage.toml").write_text('home = "/elsewhere"\n')
    with pytest.raises(InputError, match="`home` cannot be set by the file at home"):
        load(home, project)


def test_bad_variables_and_flags_name_themselves(home: Path, project: Path) -> None:
    """The origin heads the message, so that the reader knows what to correct."""
    with pytest.raises(InputError, match=r"^TONNAGE_MAX_PRICE_AGE_DAYS: found '-1', expected a whole number"):
        load(home, project, TONNAGE_MAX_PRICE_AGE_DAYS="-1")
    with pytest.raises(InputError, match=r"^flag --output: found 'jso'") as caught:
        load(home, project, {"output": "jso"})
    assert "'json'" in (caught.value.hint or "")
    with pytest.raises(InputError, match="no setting is named 'outputs'"):
        load(home, project, {"outputs": "json"})


def test_an_empty_variable_is_unset(home: Path, project: Path) -> None:
    """`TONNAGE_OUTPUT= tonnage ...` means the default, as with most tools."""
    assert load(home, project, TONNAGE_OUTPUT="").output == "table"


def test_every_setting_is_described() -> None:
    """docs/settings.md has a section for each setting, naming its variable."""
    text = (Path(__file__).parents[1] / "docs" / "settings.md").read_text(encoding="utf-8")
    for name in SETTING_NAMES:
        assert f"## `{name}`" in text
        assert f"`TONNAGE_{name.upper()}`" in text


@pytest.mark.heavy
def test_importing_settings_stays_light() -> None:
    """Nothing heavy, and not platformdirs, is loaded until settings are read."""
    heavy = "('platformdirs', 'pydantic', 'yaml')"
    code = f"import sys, tonnage.settings; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
