"""What a page is asked and answers: the request, what is shown of it, an address."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tonnage.errors import InputError, UnknownName, did_you_mean, nearest
from tonnage.reports.html import listed_names, render_html
from tonnage.values import dataclass
from tonnage.web.access import Scope, WebCaller
from tonnage.web.keys import Role
from tonnage.web.whatif import Chosen

if TYPE_CHECKING:
    from tonnage.gateway.top.keeping import GatewayLooks
    from tonnage.reports.rendering import Report
    from tonnage.settings import Settings

SUFFIX: Final = ".tonnage.yaml"
Links = tuple[tuple[str, str], ...]  # address, words


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """One request: the path's name, the query, the settings of the server and the folder of its workload files."""

    name: str
    query: Mapping[str, str]
    settings: Settings
    folder: Path
    gateways: GatewayLooks
    who: WebCaller

    def sees(self, project: str | None) -> bool:
        """Whether the asker may see what is of a project, or of none."""
        return self.who.projects is None or project in self.who.projects

    def count(self, key: str, default: int, most: int) -> int:
        """A whole number of the query. Raises InputError."""
        text = self.query.get(key)
        if text is None:
            return default
        if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= most:
            raise InputError(f"{key}: found '{text[:40]}', expected a whole number from 1 to {most}")
        return int(text)

    def beside(self, *known: str) -> dict[str, str]:
        """The query without these keys and without those that every address takes."""
        return {key: value for key, value in self.query.items() if key not in (*known, *EVERYWHERE)}

    def refuse_others(self, *known: str) -> None:
        """InputError for a key that the address does not take."""
        for key in self.beside(*known):
            hint = did_you_mean(nearest(key, known), f"known: {', '.join(known) or 'none'}")
            raise InputError(f"'{key[:40]}' is not a parameter here", hint=hint)


EVERYWHERE: Final = ("limit", "offset", "fragment")


class AskedField(NamedTuple):
    """A parameter of the address as a form shows it. `choices`: all that it may be, else any text."""

    name: str
    label: str
    value: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What an address answers: the report, further addresses, and the sliders of a what-if. `live`: the page is asked
    for again while it is open. `acts`: what may be asked of the thing shown (address, words). `fields`: what may be
    typed."""

    report: Report
    links: Links = ()
    sliders: tuple[Chosen, ...] = ()
    fields: tuple[AskedField, ...] = ()
    live: bool = False
    acts: Links = ()
    document_text: Callable[[], str] | None = None  # the document as text, made once for all who ask
    page_html: Callable[[], str] | None = None  # the page's changing part, as a function too

    def html(self) -> str:
        """The page's changing part: names in the first column of a table lead to their addresses."""
        if self.page_html is not None:
            return self.page_html()
        return render_html(self.report.page(), fragment=True, links=self.links_of_names())

    def links_of_names(self) -> dict[str, str]:
        """Those of `links` whose words are names that a table lists, by name."""
        listed = listed_names(self.report.page())
        return {words: place for place, words in self.links if words in listed}


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """An address below `/` and `/api/v1/`; a name in braces is a part of it. `menu`: its word in the menu.
    `scope`: whose things it shows; an address of `project` shows those of the asker's projects. `parameters`: of its
    query; `sliders`: those of a what-if too. `shared`: one reading answers all who ask in one second, or, where `stamp`
    says that nothing has changed since, in three."""

    path: str
    about: str
    answer: Callable[[PageRequest], Shown]
    menu: str = ""
    role: Role = "viewer"
    scope: Scope = "all"
    parameters: tuple[str, ...] = ()
    sliders: bool = False
    shared: bool = False
    stamp: Callable[[PageRequest], Hashable] | None = None


def named_files(folder: Path, suffix: str) -> dict[str, Path]:
    """Files of the folder and those right below that end so, by the name that addresses take."""
    found = [*folder.glob(f"*{suffix}"), *folder.glob(f"*/*{suffix}")]
    names = {path: path.relative_to(folder).as_posix().removesuffix(suffix).replace("/", "~") for path in found}
    return {name: path for path, name in sorted(names.items(), key=lambda one: one[1]) if path.is_file()}


def workload_files(folder: Path) -> dict[str, Path]:
    """The workload and compare files."""
    return named_files(folder, SUFFIX)


def file_of(asked: PageRequest, files: Mapping[str, Path], what: str, where: str) -> Path:
    """The file that the address names. Raises UnknownName with the nearest."""
    if asked.name not in files:
        hint = did_you_mean(nearest(asked.name, files), f"{where} lists them")
        raise UnknownName(f"no {what} is named '{asked.name[:80]}'", hint=hint)
    return files[asked.name]
