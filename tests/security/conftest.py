"""What these tests stand on: the people, rules and world of the desk."""

from tests.approvals.fixtures import ana, ben, people, site, whole, world
from tests.fixtures import in_its_own_time

__all__ = ["ana", "ben", "in_its_own_time", "people", "site", "whole", "world"]
