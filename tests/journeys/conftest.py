"""What these tests stand on."""

import pytest

pytest.register_assert_rewrite("tests.stack", "tests.visitors")

from tests.visitors import ana, rest, running, stack, ticket, visit  # noqa: E402 - rewritten first

__all__ = ["ana", "rest", "running", "stack", "ticket", "visit"]
