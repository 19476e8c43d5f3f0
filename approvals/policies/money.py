"""Exact amounts inside rules: `money("20.00")`.

CEL has no decimals and makes floats of Python's, so an amount goes in as text and becomes a CEL *duration* of
as many seconds: compared and added exactly to the sixth decimal, and, unlike a scaled integer, refused by
CEL when it is compared with a plain number. What does not fit is a problem, never rounded.
"""

import re
from datetime import timedelta
from decimal import Context, Decimal

DECIMALS = 6
#: Far under what a duration holds, so that a rule's few hundred sums cannot reach its end, where they wrap.
LIMIT = Decimal(10) ** 13
#: The default context keeps 28 digits and would round away what must be refused.
EXACT = Context(prec=200)

NUMBER = re.compile(r"[+-]?(\d{1,40}(\.\d{0,40})?|\.\d{1,40})([eE][+-]?\d{1,2})?", re.ASCII)


def read(value: object) -> tuple[timedelta | None, str]:
    """An amount from its text or an integer, or None and what is wrong. No text says the value itself."""
    amount = _decimal(value)
    if amount is None:
        return None, 'money() takes a decimal number as text, like "20.00"'
    if amount.copy_abs() >= LIMIT:
        return None, f"money() takes amounts under {LIMIT:,f}"
    micro = EXACT.scaleb(amount, DECIMALS)
    if micro != EXACT.to_integral_value(micro):
        return None, f"money() takes at most {DECIMALS} decimals"
    return timedelta(microseconds=int(micro)), ""


def _decimal(value: object) -> Decimal | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value) if abs(value) < LIMIT else LIMIT
    if isinstance(value, str) and NUMBER.fullmatch(value):
        return Decimal(value)
    return None
