"""What these tests stand on."""

from tests.visitors import ana, rest, running, stack, ticket, visit

__all__ = ["ana", "rest", "running", "stack", "ticket", "visit"]
