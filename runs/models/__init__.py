"""What is stored: fields, constraints, properties. The verbs live in the rooms."""

from runs.models.allowance import Allowance, Draw
from runs.models.credential import Credential
from runs.models.dependency import Dependency
from runs.models.event import Event
from runs.models.fact import FactReading
from runs.models.hold import Hold
from runs.models.journal import JournalEntry
from runs.models.run import Run
from runs.models.snapshot import Snapshot
from runs.models.step import Step

__all__ = [
    "Allowance",
    "Credential",
    "Dependency",
    "Draw",
    "Event",
    "FactReading",
    "Hold",
    "JournalEntry",
    "Run",
    "Snapshot",
    "Step",
]
