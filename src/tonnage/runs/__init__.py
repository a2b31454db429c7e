"""What a run is: its specification, its states, the journal of what happened, the folder that holds it all."""

from tonnage.runs.folder import RunFolder
from tonnage.runs.journal import Event, EventKind, read_journal
from tonnage.runs.spec import RunSpec, dump_spec, load_spec
from tonnage.runs.states import Reason, RunState, State, state_of

__all__ = [
    "Event",
    "EventKind",
    "Reason",
    "RunFolder",
    "RunSpec",
    "RunState",
    "State",
    "dump_spec",
    "load_spec",
    "read_journal",
    "state_of",
]
