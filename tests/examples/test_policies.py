"""The demo's rules: they compile, name only what there is, and leave no effect without a rule."""

import cel
import pytest

from examples import agents, policies
from runs import tools

VARIABLES = {"agent", "args", "tool", "labels", "submitter", "on_behalf_of", "tier"}


@pytest.mark.parametrize("rule", policies.SEED, ids=lambda rule: rule["name"])
def test_rule_compiles_and_names_what_there_is(rule):
    assert set(cel.compile(rule["expression"]).variables()) <= VARIABLES
    assert rule["tool"] in {"*", *tools.known()}
    outcomes = {"tier": {"R0", "R1", "R2", "R3"}, "verdict": {"allow", "hold", "deny"}}
    assert rule["outcome"] in outcomes[rule["pass"]]
    assert (rule["outcome"] == "hold") == ("group" in rule)


@pytest.mark.parametrize("step", ["tier", "verdict"])
def test_every_effect_has_a_rule(step):
    effects = {
        name
        for name, tool in tools.known().items()
        if tool.properties.effect and tool.function.__module__.startswith("examples.")
    }
    assert agents.purchase.name == "purchase"
    assert effects == {rule["tool"] for rule in policies.SEED if rule["pass"] == step} - {"*", "abeyance.ask"}


def test_rule_names_are_different_within_a_pass():
    names = [(rule["pass"], rule["name"]) for rule in policies.SEED]
    assert len(set(names)) == len(names)
