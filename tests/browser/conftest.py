"""What these tests stand on."""

from tests.browser.looking import look
from tests.visitors import ana, rest, running, stack, ticket, visit

__all__ = ["ana", "look", "rest", "running", "stack", "ticket", "visit"]
