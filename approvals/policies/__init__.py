"""What the policy says of a call, and how it comes to be policy.

`compile_rule` and `refusals` stand before saving, `publish` makes what is saved the next version, `current`
is the version in force, `judge` asks it, `stricter` joins what was said before and what is said now.
"""

from approvals.policies.evaluation import CallFacts, Usage
from approvals.policies.judgement import TIERS, Judgement, Policy, Reviewers, judge, stricter
from approvals.policies.language import Compiled, Position, RuleRefused, compile_rule
from approvals.policies.versions import at, current, publish, refusals, seed, supply, thaw, version

__all__ = [
    "TIERS",
    "CallFacts",
    "Compiled",
    "Judgement",
    "Policy",
    "Position",
    "Reviewers",
    "RuleRefused",
    "Usage",
    "at",
    "compile_rule",
    "current",
    "judge",
    "publish",
    "refusals",
    "seed",
    "stricter",
    "supply",
    "thaw",
    "version",
]
