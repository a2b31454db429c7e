"""What a run is: its specification, its states, the journal of what happened, the folder that holds it all."""

from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import Event, EventKind, read_journal
from tonnage.runs.spec import RunSpec, dump_spec, load_spec
from tonnage.runs.states import RunReason, RunState, RunStatus, state_of

__all__ = [
    "Event",
    "EventKind",
    "RunFolder",
    "RunReason",
    "RunSpec",
    "RunState",
    "RunStatus",
    "dump_spec",
    "load_spec",
    "read_journal",
    "state_of",
]
