"""What decides returns values: sentences are made in `reports` alone. Prose is plain: no archaic or elliptic word."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "tonnage"
PURE = sorted(
    path
    for folder in (
        "planning",
        "sizing",
        "spot_instances",
        "scaling",
        "service",
        "portfolios",
        "rightsizing",
        "pricing",
        "comparison",
    )
    for path in (SOURCE / folder).rglob("*.py")
)
SENTENCE_WORDS = 6  # names of things are shorter
WORD = re.compile(r"(?:^|(?<=[\s(«]))[A-Za-z][\w'-]*")
TOLD_ELSEWHERE = ("on_step", "say", "show")  # progress, on its way to the terminal
# Where words stand on purpose: sources of judgements, and the workload's own fields in words above a plan.
SOURCES = {
    "sizing/engines.py",
    "sizing/assumptions.py",
    "sizing/tabular_assumptions.py",
    "sizing/vector_assumptions.py",
    "planning/assumed.py",
    "spot_instances/saves.py",
    "pricing/interruptions.py",
}
FAULTS = "faults of a file, on their way into an error"
LEFT = {
    "planning/summary.py": "the workload's own fields, in words",
    "pricing/deals.py": "names of lines of the ledger",
    "pricing/lines.py": "names of lines of the ledger",
    "comparison/alternative_checks.py": FAULTS,
    "comparison/criteria.py": FAULTS,
    "comparison/user_files.py": FAULTS,
    "comparison/profiles.py": FAULTS,
    "comparison/request.py": FAULTS,
    "comparison/rules.py": FAULTS + "; what each fact means",
    "comparison/starter.py": "the file that `tonnage init` writes",
    "comparison/compliance.py": "the scope of an attestation, as profiles have it",
    "comparison/facts.py": "where a fact is from",
    "comparison/narrowed.py": "cells of a profile, as its file has them",
}


def sentences(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """String literals of a sentence's length that may end in a result: no docstring, no error, no progress, no kind of
    a `Literal`."""
    out = {node for kind in (*docstrings(tree), *errors(tree)) for node in ast.walk(kind)}
    typed = set(kinds(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and node not in out:
            out |= set(ast.walk(node)) - {node}
            text = "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in out:
            text = node.value
        else:
            continue
        if len(WORD.findall(text)) >= SENTENCE_WORDS and text not in typed:
            yield node.lineno, text


def kinds(tree: ast.AST) -> Iterator[object]:
    """What a `Literal` of the module allows: values, whatever they are called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Literal":
            yield from (one.value for one in ast.walk(node.slice) if isinstance(one, ast.Constant))


def docstrings(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node


def errors(tree: ast.AST) -> Iterator[ast.AST]:
    """What is raised, what an assertion says, hints of errors, progress."""
    names = {
        name.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise)
        for name in ast.walk(node)
        if isinstance(name, ast.Name)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Raise | ast.Assert)
            or (isinstance(node, ast.keyword) and node.arg == "hint")
            or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in TOLD_ELSEWHERE)
        ):
            yield node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(to, ast.Name) and to.id in names for to in targets):
                yield node  # the words of an error, put together before it is raised


def test_a_sentence_is_found() -> None:
    """The search sees words in literals and formatted strings; neither docstrings, errors nor typed kinds."""
    text = '''
"""A docstring that has more than five words."""
Kind = Literal["units of the machine's own jobs"]
KIND = "units of the machine's own jobs"
def note(rows):
    if not rows:
        fault = "no rows are in the table that was given"
        raise ValueError(fault)
    return f"{rows} more rows are left out of the prices"
'''
    assert [line for line, _ in sentences(ast.parse(text))] == [9]


@pytest.mark.parametrize("path", PURE, ids=lambda path: str(path.relative_to(SOURCE)))
def test_what_decides_makes_no_sentences(path: Path) -> None:
    """Reasons, notes and distances are values with a kind and figures; `reports.reasons` has their words."""
    name = path.relative_to(SOURCE).as_posix()
    found = [] if name in SOURCES else list(sentences(ast.parse(path.read_text())))
    if name in LEFT:
        assert found, f"{name} has no sentence any more: strike it from LEFT"
    else:
        assert not found, f"{name} makes sentences: {found}"


# Each of these has a plain word: «again», «unknown», «0», «is reported», «no one».
ARCHAIC = re.compile(
    r"\b(anew|aught|betwixt|forsooth|hath|herein|hither|hitherto|lest|likewise|naught|nought|oft|shall|thence|thereof|"
    r"therein|thither|told|unto|upon|whence|whereof|wherein|whilst|whither|"
    r"for ever|for want of|is had|was had|be it with)\b",
    re.IGNORECASE,
)
# In docstrings and comments: «is», «rests», «occurs», a state. «Stands for», «stands in for» and «stands by» are plain.
STANDS = re.compile(r"\bstands?\b(?!-in| for\b| in for\b| by\b| out\b|-alone)", re.IGNORECASE)
CODE = re.compile(r"`[^`]*`|\{[^{}]*\}|\[['\"]\w+['\"]\]")  # names in a sentence, fields of a formatted string
VALUES = {"planned anew"}  # of JSON, which keeps its words


def archaic(text: str) -> list[tuple[int, str]]:
    """(line, word) of the archaic words in docstrings, comments and texts of a module; «stands» in the first two."""
    if not ARCHAIC.search(text) and not STANDS.search(text):  # also those of code: most modules have none
        return []
    found = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name = tokenize.tok_name[token.type]
        bare = token.string.strip("\"'")
        if name in ("STRING", "COMMENT", "FSTRING_MIDDLE") and bare not in VALUES and not bare.isidentifier():
            said = name == "COMMENT" or token.string.startswith('"""')
            for offset, line in enumerate(token.string.split("\n")):
                for words in (ARCHAIC, STANDS) if said else (ARCHAIC,):
                    found += [(token.start[0] + offset, word[0]) for word in words.finditer(CODE.sub("", line))]
    return found


def test_an_archaic_word_is_found() -> None:
    """In docstrings, comments and texts; a name in backticks or braces is code."""
    text = '''
"""It is planned anew.

`told` is a name.
"""
told = f"{told} rows, none thereof read"  # the file is told
METHOD = "planned anew"
SAID = "the alerts stand"  # where a row stands for another
STATE = 1  # how things stand
'''
    assert archaic(text)[0] == (2, "anew")
    assert {line for line, _ in archaic(text)} == {2, 6, 9}


# Elliptic in a docstring: «that is none» for «that is not one», «is said» for «is reported».
ELLIPTIC = re.compile(
    r"\b(that|it|which) (is|are) none\b(?! of)|\b(what|which) is said (of|when|once|where)\b", re.IGNORECASE
)


def elliptic(text: str) -> list[tuple[int, str]]:
    """(line, words) of the elliptic phrases in the docstrings of a module."""
    if not ELLIPTIC.search(text):
        return []
    return [
        (node.lineno, found[0])
        for node in docstrings(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for found in ELLIPTIC.finditer(CODE.sub("", str(node.value.value)))
    ]


def test_an_elliptic_phrase_is_found() -> None:
    """In docstrings alone; «none of» is whole."""
    text = '''
"""InputError for a name that is none."""
WORDS = "a name that is none"
def read():
    """What is said of a run; it is none of ours."""
'''
    assert [line for line, _ in elliptic(text)] == [2, 5]


def test_docstrings_are_whole() -> None:
    """No docstring has one of the elliptic phrases."""
    modules = sorted(SOURCE.rglob("*.py"))
    found = {path.relative_to(SOURCE).as_posix(): words for path in modules if (words := elliptic(path.read_text()))}
    assert not found, f"say what it is («that is not one», «is reported», «the message about»): {found}"


def test_prose_is_plain() -> None:
    """No docstring, comment or message has an archaic or elliptic word."""
    modules = sorted(SOURCE.rglob("*.py"))
    found = {path.relative_to(SOURCE).as_posix(): words for path in modules if (words := archaic(path.read_text()))}
    assert not found, f"a plain word in place of each («again», «unknown», «gets», «is reported»): {found}"


@pytest.mark.parametrize("page", ["README.md", "SCOPE.md", "CONTRIBUTING.md"])
def test_the_first_pages_are_plain(page: str) -> None:
    """What a newcomer reads first."""
    assert not ARCHAIC.findall((SOURCE.parents[1] / page).read_text(encoding="utf-8"))
