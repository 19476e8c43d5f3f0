"""The inbox: what waits for one person, in lanes by risk and time left, and what changed since a page was made.

However many requests are pending, a page reads its own part of an index: in each lane the first rows in order, and
as many to count as are counted at all. Counts are exact up to `COUNTED`; beyond it they say that there are more.
Nothing is decided here, and no argument is read but by a search.
"""

from approvals.inbox.changes import Changes, Gone, Shown, changes
from approvals.inbox.filters import Filters
from approvals.inbox.finding import Found, Part, Waiting, find, first, one_lane
from approvals.inbox.statements import COUNTED, LANES, SEARCHED, Mark

__all__ = [
    "COUNTED",
    "LANES",
    "SEARCHED",
    "Changes",
    "Filters",
    "Found",
    "Gone",
    "Mark",
    "Part",
    "Shown",
    "Waiting",
    "changes",
    "find",
    "first",
    "one_lane",
]
