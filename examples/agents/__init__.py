"""The demo's agents. The setting `AGENTS` names this package, and importing it registers all of them.

`shop` has three that do a shop's work. Each of the others shows one way to stop, tools and agent side by side:
`budget`, `dependency`, `credential`, `doubt`, `child`. `./run demo` sets these up.
"""

from examples.agents.budget import copywriter
from examples.agents.child import after_sales
from examples.agents.credential import bookkeeper
from examples.agents.dependency import dispatcher
from examples.agents.doubt import goodwill
from examples.agents.shop import QuoteChoice, mailing, purchase, refund_desk

__all__ = [
    "QuoteChoice",
    "after_sales",
    "bookkeeper",
    "copywriter",
    "dispatcher",
    "goodwill",
    "mailing",
    "purchase",
    "refund_desk",
]
