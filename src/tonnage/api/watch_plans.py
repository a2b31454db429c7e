"""Plans that a watch looks after: made again when the catalog's snapshot has changed, to see whether another one wins.

A plan is made once a day at most. What won is kept at home with the plan's cost then, so that a watch that starts again
knows it; a workload file that was edited starts over, since what moved is then not the prices.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tonnage.errors import TonnageError
from tonnage.files import write_whole
from tonnage.metric_names import REGISTRY
from tonnage.monitoring.figures import series
from tonnage.settings import Settings
from tonnage.values import dataclass

if TYPE_CHECKING:
    from tonnage.monitoring.figures import SeriesKey
    from tonnage.planning.plan import Option, Plan

MOVED: Final = "tonnage_plan_winner_moved_usd"
SHOWN: Final = timedelta(days=1)
SCHEMA: Final = "tonnage/watched-plans@1"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedPlan:
    """What a file's plan said last. `before`, `saves_usd`, `moved_at`: of the newest change of the winner, if any.

    `saves_usd`: what the winner of before costs at the new prices (at the old ones where it is no option any more) less
    the new winner's cost; of a month for a service, else of the whole work.
    """

    file_hash: str
    snapshot: str
    planned_on: str  # the day, UTC
    winner: str
    identity: tuple[str | int, ...]
    cost_usd: float
    before: str = ""
    saves_usd: float = 0.0
    moved_at: str = ""


class PlanWatch:
    """The plans of some files. `plan`: of a file, at today's prices; `snapshot`: names the prices; `say`: hears what
    cannot be planned, once."""

    def __init__(
        self, files: Sequence[Path], state_file: Path, *, plan: Callable[[Path], Plan], snapshot: Callable[[], str],
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._files, self._state_file, self._plan, self._snapshot, self._say = files, state_file, plan, snapshot, say
        self._said: dict[Path, str] = {}
        self._known = _read(state_file, say) if files else {}

    def figures(self, now: datetime) -> Iterator[tuple[SeriesKey, float]]:
        """The winners that moved within a day."""
        for file in self._files:
            try:
                found = self._looked(file, now)
            except (OSError, TonnageError) as error:
                if self._said.get(file) != str(error):
                    self._say(f"plans: {file}: {error}")
                self._said[file] = str(error)
                continue
            self._said.pop(file, None)
            if found is not None and found.moved_at and now - datetime.fromisoformat(found.moved_at) < SHOWN:
                labels = {"plan": str(file), "before": found.before, "winner": found.winner}
                yield series(REGISTRY[MOVED].name, labels), found.saves_usd

    def _looked(self, file: Path, now: datetime) -> WatchedPlan | None:
        """The plan as known, made again where prices changed since, on another day; None: nothing fits."""
        known, snapshot = self._known.get(str(file)), self._snapshot()
        digest, day = hashlib.sha256(file.read_bytes()).hexdigest(), now.date().isoformat()
        edited = known is None or known.file_hash != digest
        if known is not None and not edited and (known.snapshot == snapshot or known.planned_on == day):
            return known
        made = self._plan(file)
        if made.best is None:
            self._known.pop(str(file), None)
            raise TonnageError("nothing fits it any more", hint=f"tonnage plan {file}")
        found = _newly(made, made.best, None if edited else known, now, digest, snapshot)
        self._known[str(file)] = found
        plans = {name: asdict(one) for name, one in self._known.items()}
        write_whole(self._state_file, json.dumps({"schema": SCHEMA, "plans": plans}) + "\n")
        return found


def watched_plans(files: Sequence[Path], settings: Settings, state_file: Path, say: Callable[[str], None]) -> PlanWatch:
    """Planned with the settings' catalog: the newest snapshot at home unless they name one."""
    from tonnage.api.catalogs import newest_snapshot
    from tonnage.api.plans import plan

    def snapshot() -> str:
        folder = settings.catalog or newest_snapshot(settings.home)
        return "built-in" if folder is None else f"{folder} {(folder / 'snapshot.toml').stat().st_mtime_ns}"

    return PlanWatch(
        files, state_file, plan=lambda file: plan(file, settings=settings).plan, snapshot=snapshot, say=say
    )  # fmt: skip


def _newly(
    made: Plan, best: Option, known: WatchedPlan | None, now: datetime, digest: str, snapshot: str
) -> WatchedPlan:
    moved = known is not None and tuple(known.identity) != best.identity
    before, saves, moved_at = ("", 0.0, "") if known is None else (known.before, known.saves_usd, known.moved_at)
    if moved and known is not None:
        same = next((one for one in made.options if one.identity == tuple(known.identity)), None)
        costs = known.cost_usd if same is None else same.cost_usd.value
        before, saves, moved_at = known.winner, costs - best.cost_usd.value, now.isoformat()
    return WatchedPlan(
        file_hash=digest, snapshot=snapshot, planned_on=now.date().isoformat(), winner=_words(best),
        identity=best.identity, cost_usd=best.cost_usd.value, before=before, saves_usd=saves, moved_at=moved_at,
    )  # fmt: skip


def _words(option: Option) -> str:
    where = f" {option.region}" if option.region else ""
    return f"{option.count} x {option.instance_type} at {option.provider}{where}, {option.purchase}"


def _read(file: Path, say: Callable[[str], None]) -> dict[str, WatchedPlan]:
    try:
        read: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return {name: WatchedPlan(**one) for name, one in read["plans"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        say(f"{file} is left aside, plans start over: {error}")
        return {}
