"""The operators' door to runs: looking at everything, and the verbs on runs.

Nothing is added, changed or deleted here, also not by superusers: who may look is asked of `callers`. What
the admin can do to a run are the verbs every door calls.
"""

from runs.admin.allowance import AllowanceAdmin, DrawAdmin
from runs.admin.outside import CredentialAdmin, DependencyAdmin
from runs.admin.record import FactReadingAdmin, HoldAdmin, JournalAdmin, SnapshotAdmin, StepAdmin
from runs.admin.run import RunAdmin

__all__ = [
    "AllowanceAdmin",
    "CredentialAdmin",
    "DependencyAdmin",
    "DrawAdmin",
    "FactReadingAdmin",
    "HoldAdmin",
    "JournalAdmin",
    "RunAdmin",
    "SnapshotAdmin",
    "StepAdmin",
]
