"""Made-up rows to start from, the same each time; each set can be learned, and none says anything about the world."""

from __future__ import annotations

import csv
import io
import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final

Row = dict[str, Any]
TOPICS: Final = {
    "billing": ("invoice", "charged twice", "refund", "receipt", "card was declined"),
    "delivery": ("parcel", "courier", "tracking number", "delivered late", "wrong address"),
    "account": ("password", "log in", "verification code", "profile", "e-mail address"),
}
OPENINGS: Final = ("hello ,", "hi there ,", "good morning ,", "please help ,", "dear team ,")
ABOUT: Final = (
    "there is a problem with my",
    "I have a question about the",
    "nobody answers about the",
    "what about my",
)
NAMES: Final = ("Anna", "Bertha", "Carlos", "Dimitri", "Elif", "Farid", "Grace", "Hugo", "Ines", "Jonas")
PLACES: Final = (("New", "York"), ("Rome",), ("San", "Sebastian"), ("Tallinn",), ("Buenos", "Aires"), ("Oslo",))
VERBS: Final = ("lives in", "works in", "moved to", "comes from", "wrote from")
THINGS: Final = ("ball", "hat", "door", "car", "lamp", "chair", "coat", "cup")
COLOURS: Final = ("red", "green", "blue", "yellow", "pink", "white")
ANIMALS: Final = ("cat", "dog", "cow", "horse", "bird")
DEEDS: Final = ("sat on", "slept under", "jumped over", "looked at", "ran around")
BEASTS: Final = {"cat": "chat", "dog": "chien", "horse": "cheval", "bird": "merle"}
ACTS: Final = {"sat on": "pose sur", "slept under": "dort sous", "looked at": "regarde", "took": "prend"}
HUES: Final = {"red": "rouge", "green": "vert", "blue": "bleu", "white": "blanc"}
GOODS: Final = {"hat": "chapeau", "coat": "manteau", "bench": "banc", "carpet": "tapis"}
PICTURE: Final = 24  # pixels a side
FIGURES: Final[
    dict[str, Callable[[int, int, int], bool]]
] = {  # whether a point so far down and across from the middle belongs to a figure of a size
    "disc": lambda y, x, size: y * y + x * x <= size * size,
    "cross": lambda y, x, size: max(y, x) <= size and min(y, x) <= 1,
    "frame": lambda y, x, size: size - 1 <= max(y, x) <= size,
}
DISTRICTS: Final = {"centre": 6.0, "harbour": 4.0, "hills": 2.5, "north": 0.0}


def messages(count: int, draw: Random) -> list[Row]:
    """Messages to a help desk and what they are about."""
    rows: list[Row] = []
    for _ in range(count):
        topic = draw.choice(list(TOPICS))
        text = f"{draw.choice(OPENINGS)} {draw.choice(ABOUT)} {draw.choice(TOPICS[topic])}"
        rows.append({"text": text, "label": topic})
    return rows


def sentences(count: int, draw: Random) -> list[Row]:
    """Sentences with the names of people and places tagged IOB2."""
    rows: list[Row] = []
    for _ in range(count):
        verb, place = draw.choice(VERBS).split(), draw.choice(PLACES)
        words = [draw.choice(NAMES), *verb, *place, "since", str(draw.randrange(1950, 2020))]
        marks = ["B-LOC"] + ["I-LOC"] * (len(place) - 1)
        rows.append({"tokens": words, "tags": ["B-PER", "O", "O", *marks, "O", "O"]})
    return rows


def questions(count: int, draw: Random) -> list[Row]:
    """Questions on a short text, each with the place of its answer."""
    rows: list[Row] = []
    for _ in range(count):
        thing, other = draw.sample(THINGS, k=2)
        colour, price, place = draw.choice(COLOURS), str(draw.randrange(2, 60)), " ".join(draw.choice(PLACES))
        context = f"The {other} is sold . The {thing} is {colour} , costs {price} euros and comes from {place} ."
        asked = {
            f"what colour is the {thing} ?": colour,
            f"what does the {thing} cost ?": price,
            f"where does the {thing} come from ?": place,
        }
        question = draw.choice(list(asked))
        start = context.index(f" {asked[question]} ") + 1
        answers = {"text": [asked[question]], "answer_start": [start]}
        rows.append({"question": question, "context": context, "answers": answers})
    return rows


def stories(count: int, draw: Random) -> list[Row]:
    """Plain sentences."""
    return [
        {"text": f"the {draw.choice(ANIMALS)} {draw.choice(DEEDS)} the {draw.choice(COLOURS)} {draw.choice(THINGS)} ."}
        for _ in range(count)
    ]


def beginnings(count: int, draw: Random) -> list[Row]:
    """First words of such sentences."""
    return [{"prompt": f"the {draw.choice(ANIMALS)} {draw.choice(DEEDS)}"} for _ in range(count)]


def translations(count: int, draw: Random) -> list[Row]:
    """Plain sentences and what a small dictionary makes of them; the colour follows its thing."""
    rows: list[Row] = []
    for _ in range(count):
        animal, deed, colour, thing = (draw.choice(list(words)) for words in (BEASTS, ACTS, HUES, GOODS))
        source = f"the {animal} {deed} the {colour} {thing} ."
        target = f"le {BEASTS[animal]} {ACTS[deed]} le {GOODS[thing]} {HUES[colour]} ."
        rows.append({"source": source, "target": target})
    return rows


def pictures(count: int, draw: Random) -> Mapping[str, bytes]:
    """Small pictures by path: a bright figure somewhere on a dark ground, in a folder named after the figure."""
    found = {}
    for number in range(count):
        name = draw.choice(list(FIGURES))
        figure, size = FIGURES[name], draw.randrange(4, 7)
        row, column = (draw.randrange(size, PICTURE - size) for _ in range(2))
        bright, dark = ([draw.randrange(low, low + 80) for _ in range(3)] for low in (170, 10))
        pixels = bytes(
            min(255, value + draw.randrange(15))
            for y in range(PICTURE)
            for x in range(PICTURE)
            for value in (bright if figure(abs(y - row), abs(x - column), size) else dark)
        )
        found[f"{name}/{number:04}.png"] = as_png(pixels, PICTURE)
    return found


def as_png(pixels: bytes, side: int) -> bytes:
    """A square picture (red, green, blue, a byte each) as a PNG file.

    Source: PNG specification, third edition (W3C 2025), sections 5 and 11: chunks IHDR, IDAT and IEND.
    """

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    lines = b"".join(b"\0" + pixels[at : at + 3 * side] for at in range(0, len(pixels), 3 * side))
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(lines, 9)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def flats(count: int, draw: Random) -> list[Row]:
    """Flats and their rent: size, age and district count, and some luck."""
    rows: list[Row] = []
    for _ in range(count):
        area, age, district = draw.randrange(20, 160), draw.randrange(0, 90), draw.choice(list(DISTRICTS))
        lift = draw.random() < 0.4
        rent = 200 + area * (9 + DISTRICTS[district]) - 2.5 * min(age, 40) + 60 * lift + draw.gauss(0, 40)
        rows.append({"area": area, "age": age, "district": district, "lift": lift, "rent": round(rent, 2)})
    return rows


def as_jsonl(rows: Sequence[Row]) -> str:
    """One object a line."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def as_csv(rows: Sequence[Row]) -> str:
    """A header, then a line each."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
