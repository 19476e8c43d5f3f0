"""What these tests stand on."""

from tests.fixtures import alone, in_its_own_time, invariants, outside, registries, rules

__all__ = ["alone", "in_its_own_time", "invariants", "outside", "registries", "rules"]
