"""What these tests stand on."""

from tests.visitors import running, stack

__all__ = ["running", "stack"]
