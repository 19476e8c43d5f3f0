"""A host whose clock is wrong: in a process that finds this on its path, Python's clock runs `SKEW` seconds ahead.

Python imports it before anything else, so that whoever asks for the time of day gets the wrong one: `time.time`,
`datetime.now`, `date.today`. What lasts, `time.monotonic`, is right on such a host too.
"""

import datetime
import os
import time
from typing import Any

SKEW = float(os.environ.get("SKEW", "0"))
_time, _datetime, _date = time.time, datetime.datetime, datetime.date


class _Is(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.__mro__[1])

    def __subclasscheck__(cls, other: type) -> bool:
        return issubclass(other, cls.__mro__[1])


class Datetime(_datetime, metaclass=_Is):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        return _datetime.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> Any:
        return _datetime.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:
        return _datetime.fromtimestamp(time.time())


class Date(_date, metaclass=_Is):
    @classmethod
    def today(cls) -> Any:
        return _date.fromtimestamp(time.time())


if SKEW:
    time.time = lambda: _time() + SKEW
    time.time_ns = lambda: int((_time() + SKEW) * 1e9)
    datetime.datetime, datetime.date = Datetime, Date  # type: ignore[misc]
