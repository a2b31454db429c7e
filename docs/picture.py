"""Draw what `tonnage plan` prints as docs/pictures/plan.svg, the picture of README.md: `python docs/picture.py`.

The command runs; its coloured output is cut to the sections of `SHOWN` and drawn by rich. The picture names no web
font: a reader's own monospaced font fills the widths that it states. `docs/refresh.py` draws it too, and
`tests/test_docs.py` fails when the picture is not what this would draw.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "pictures" / "plan.svg"
COMMAND = ("plan", "examples/bert-finetune.tonnage.yaml", "--top", "5")
COLUMNS = 104
SHOWN = {r"Plan for": 2, r"Best$": 3, r"Ranking": 99, r"Why": 12}  # a heading -> lines of its section
ENVIRONMENT = {
    "COLUMNS": str(COLUMNS), "TONNAGE_AS_OF": "2026-11-20T00:00Z", "TONNAGE_COLOR": "always",
    "TONNAGE_HOME": "/dev/null/none",
}  # fmt: skip
WEB_FONT = re.compile(r"\s*@font-face \{\{.*?\}\}", re.DOTALL)


def printed() -> str:
    """What the command prints on a terminal with colours; RuntimeError where it fails."""
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | ENVIRONMENT
    command = [sys.executable, "-m", "tonnage", *COMMAND]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(f"tonnage {' '.join(COMMAND)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def shown(lines: list[Text]) -> Iterator[Text]:
    """The sections of `SHOWN`, with «...» where one is cut short."""
    left, cut = 0, False
    for line in lines:
        if line.plain and not line.plain.startswith(" "):
            left = next((most for heading, most in SHOWN.items() if re.match(heading, line.plain)), 0)
            cut = left > 2
        if left:
            left -= 1
            yield line
        elif cut and line.plain:
            cut = False
            yield Text("  ...")
            yield Text()


def draw() -> str:
    """The picture as SVG; the same output gives the same bytes."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(f"$ tonnage {' '.join(COMMAND)}", style="bold", highlight=False)
    for line in shown([Text.from_ansi(one) for one in printed().splitlines()]):
        console.print(line, soft_wrap=True)
    return console.export_svg(
        title="tonnage plan", theme=DIMMED_MONOKAI, code_format=WEB_FONT.sub("", CONSOLE_SVG_FORMAT), unique_id="plan"
    )


def main() -> None:
    PICTURE.write_text(draw(), encoding="utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
