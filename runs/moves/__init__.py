"""Moving a suspended run to another installation: out as a bundle, in as the same run under the same id.

`leaving` writes the bundle and ends the run here in one transaction, `arriving` checks a bundle and makes the run
go on, `bundle` is its format, `rows` how rows travel. What other apps know of a run they bring along themselves
(`register`). Effects keep their keys, so that what is repeated elsewhere is repeated under the same one.
"""

from runs.moves.arriving import arrive
from runs.moves.contract import Part, register
from runs.moves.leaving import MOVED, leave

__all__ = ["MOVED", "Part", "arrive", "leave", "register"]
