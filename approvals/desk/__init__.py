"""What a reviewer can do with a request beside deciding it, one verb a concern.

Each takes the locks of the run and the request, asks `reviewers` whether this person may, writes one entry into the
request's journal and changes neither revision nor digest: decisions that stand go on standing. A refusal is
journalled, too.
"""

from approvals.desk.asking import answer, ask
from approvals.desk.commenting import comment
from approvals.desk.delegating import Passed, delegate, may_take, passed
from approvals.desk.extending import MOST as MOST_EXTENSIONS
from approvals.desk.extending import more_time
from approvals.desk.reserving import let_go, reserve
from approvals.desk.seat import in_words
from approvals.desk.snoozing import latest, snooze, wake

__all__ = [
    "MOST_EXTENSIONS",
    "Passed",
    "answer",
    "ask",
    "comment",
    "delegate",
    "in_words",
    "latest",
    "let_go",
    "may_take",
    "more_time",
    "passed",
    "reserve",
    "snooze",
    "wake",
]
