"""Writes short support tickets, each sorted into the queue that answers it: python3 make_tickets.py FOLDER"""

import json
import random
import sys
from pathlib import Path

QUEUES = {
    "billing": [
        "the invoice shows {n} seats too many", "I was charged twice for {m}", "please refund the {m} payment",
        "which card is used for the next payment", "the tax number on the bill of {m} is wrong",
    ],
    "access": [
        "my password is not accepted since {m}", "the login page asks for a code again and again",
        "please unlock the account of a colleague", "{n} people of my team cannot sign in", "I lost my second factor",
    ],
    "outage": [
        "the dashboard is down for {n} minutes now", "every request ends in error {n}00", "uploads hang since {m}",
        "the service answers slowly, {n} seconds a page", "nothing loads, all pages are blank",
    ],
}  # fmt: skip
OPENINGS = ["Hello,", "Hi team,", "Good morning,", "Urgent:", "Dear support,", ""]
ENDINGS = ["Thanks.", "Please help.", "Can you look at it today?", "Best regards", ""]
MONTHS = ["January", "March", "May", "July", "October"]


def ticket(draw: random.Random, number: int) -> dict[str, str]:
    """One ticket; what it says tells the queue, how it begins and ends does not."""
    queue = draw.choice(sorted(QUEUES))
    said = draw.choice(QUEUES[queue]).format(n=draw.randrange(2, 9), m=draw.choice(MONTHS))
    words = (draw.choice(OPENINGS), said, draw.choice(ENDINGS))
    return {"id": f"T{number}", "text": " ".join(one for one in words if one), "queue": queue}


def main() -> None:
    folder, draw = Path(sys.argv[1]), random.Random(7)
    folder.mkdir(exist_ok=True)
    number = 0
    for name, count in (("train", 320), ("test", 90), ("today", 200)):
        with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            for _ in range(count):
                number += 1
                row = ticket(draw, number)
                if name == "today":  # nobody has sorted these
                    del row["queue"]
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
