"""Check the claims of a Markdown document: the body of `tonnage compare --check`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tonnage.cli.session import Session

LARGEST_DOCUMENT_BYTES: Final = 20_000_000


def check_document_file(session: Session, file: str, *, strict: bool, every_claim: bool) -> None:
    """Check every claim of a document and show the findings. With `strict`, ClaimsFound on wrong or stale ones."""
    path = Path(file)
    text = read_document(path)
    from tonnage.api import load_catalog
    from tonnage.claims import check_document
    from tonnage.errors import ClaimsFound
    from tonnage.reports.claims import claims_report

    known = load_catalog(settings=session.settings)
    with session.progress(f"checking {path.name}"):
        checked = check_document(text, known, name=path.name)
    session.show(claims_report(checked, every_claim=every_claim))
    if strict and checked.alarms:
        raise ClaimsFound(
            f"{path.name} has {len(checked.alarms)} wrong or stale claims",
            hint="correct them, or leave --strict out to see them and exit 0",
        )


def read_document(path: Path) -> str:
    """The text of a document; InputError where there is none to read."""
    from tonnage.errors import InputError

    hint = "give a Markdown file, UTF-8, such as comparison.md"
    try:
        with path.open("rb") as stream:
            raw = stream.read(LARGEST_DOCUMENT_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist", hint=hint) from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder", hint=hint) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", hint=hint) from error
    if len(raw) > LARGEST_DOCUMENT_BYTES:
        raise InputError(f"{path} is larger than {LARGEST_DOCUMENT_BYTES // 10**6} MB", hint="check it in parts")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text (byte {error.start})", hint=hint) from error
    if "\0" in text:
        raise InputError(f"{path} is not text: it holds zero bytes", hint=hint)
    if not text.strip():
        raise InputError(f"{path} is empty", hint=hint)
    return text
