"""The rules a first start of the demo writes into the policy tables; after that they are edited in the admin.

Plain data, in order: tier rules are read before verdict rules. For each tool at most one rule of a pass is
true, so neither the order nor "the first wins" or "the strictest wins" changes what happens. What no rule
allows is held. Times are seconds. `group` names the Django group whose members decide.
"""

from __future__ import annotations

from typing import Any

MINUTE, HOUR, DAY = 60, 3600, 86400
LOOKS = '!tool.effect && tool.name != "abeyance.ask"'
SMALL = 'money(args.amount) <= money("20.00")'
LARGE = 'money(args.amount) > money("1000.00")'
TOO_LARGE = 'money(args.amount) > money("10000.00")'


def _tier(name: str, tool: str, expression: str, outcome: str) -> dict[str, Any]:
    return {"pass": "tier", "name": name, "tool": tool, "expression": expression, "outcome": outcome}


def _verdict(name: str, tool: str, expression: str, outcome: str) -> dict[str, Any]:
    return {"pass": "verdict", "name": name, "tool": tool, "expression": expression, "outcome": outcome}


def _hold(
    name: str, tool: str, expression: str, *, group: str, decide_within: int, consume_within: int
) -> dict[str, Any]:
    clocks = {"decide_within": decide_within, "consume_within": consume_within, "undo_seconds": 0}
    return _verdict(name, tool, expression, "hold") | {"group": group} | clocks


SEED: list[dict[str, Any]] = [
    _tier("Looking changes nothing", "*", LOOKS, "R0"),
    _tier("An answer to a customer", "reply", "true", "R0"),
    _tier("A quote binds nobody", "request_quote", "true", "R0"),
    _tier("Small refunds", "issue_refund", SMALL, "R1"),
    _tier("Refunds", "issue_refund", f"!({SMALL}) && !({LARGE})", "R2"),
    _tier("Large refunds", "issue_refund", LARGE, "R3"),
    _tier("Mailings to a few", "send_mailing", "size(args.recipients) <= 100", "R2"),
    _tier("Mailings to many", "send_mailing", "size(args.recipients) > 100", "R3"),
    _tier("Purchases", "buy", f"!({LARGE})", "R2"),
    _tier("Large purchases", "buy", LARGE, "R3"),
    _tier("Parcels", "send_parcel", "true", "R1"),
    _tier("Entries in the books", "book_entry", "true", "R1"),
    _tier("Payouts", "make_payout", f"!({LARGE})", "R2"),
    _tier("Large payouts", "make_payout", LARGE, "R3"),
    _verdict("Looking is free", "*", LOOKS, "allow"),
    _verdict("Customers are answered", "reply", "true", "allow"),
    _verdict("Quotes may be asked for", "request_quote", "true", "allow"),
    _verdict("Small refunds are made at once", "issue_refund", SMALL, "allow"),
    _hold("Refunds are decided by the refunds team", "issue_refund", f"!({SMALL}) && !({TOO_LARGE})",
          group="refunds", decide_within=3 * DAY, consume_within=HOUR),
    _verdict("Refunds over 10,000 EUR are not made here", "issue_refund", TOO_LARGE, "deny"),
    _verdict("Parcels are sent", "send_parcel", "true", "allow"),
    _verdict("Entries are booked", "book_entry", "true", "allow"),
    _verdict("Small payouts are made at once", "make_payout", SMALL, "allow"),
    _hold("Payouts are decided by the refunds team", "make_payout", f"!({SMALL})",
          group="refunds", decide_within=3 * DAY, consume_within=HOUR),
    _hold("Mailings are decided by marketing", "send_mailing", "true",
          group="marketing", decide_within=DAY, consume_within=HOUR),
    _hold("Purchases are decided by purchasing", "buy", "true",
          group="purchasing", decide_within=HOUR, consume_within=15 * MINUTE),
    _hold("Questions of the purchase agent", "abeyance.ask", 'agent.name == "purchase"',
          group="purchasing", decide_within=HOUR, consume_within=HOUR),
]  # fmt: skip
