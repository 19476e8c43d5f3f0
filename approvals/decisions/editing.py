"""An edit before approving: the tool's own schema and policy are asked about the edited call.

An edit never lowers anything; where policy names other reviewers for the edited call, they decide.
"""

import dataclasses
import json
from typing import Any

from approvals import authority, policies
from approvals.exceptions import Unfit
from approvals.models import Request, Revision
from approvals.policies import Judgement
from approvals.presentation import shown
from runs import agents, values
from runs.exceptions import BadArguments, BadValue
from runs.gate import Proposal
from runs.tools.calls import Call


def check_edit(request: Request, revision: Revision, arguments: str) -> tuple[str, Judgement]:
    """The canonical text of edited arguments, and what policy says of the edited call (with what stood).

    Raises Unfit: unknown tool, arguments that do not fit, or policy denies it.
    """
    tool = shown.known(revision.tool, revision.tool_version)
    if tool is None:
        raise Unfit(
            {"": f"The tool {revision.tool} changed since this was proposed, so it cannot be edited."}
        )
    try:
        text = tool.signature.write_json(values.parse(arguments, limit=values.MAX_ARGUMENTS))
    except BadArguments as error:
        raise Unfit({path.lstrip("/").split("/")[0]: said for path, said in error.errors}) from None
    except BadValue as error:
        raise Unfit({"": str(error)}) from None
    judged = authority.Authority().judge(proposal(request, Call(tool, text))).terms
    if judged.verdict == "deny":
        raise Unfit({"": f"Policy does not allow the edited call: {judged.why}"})
    return text, _at_least(Judgement.from_json(revision.judgement), judged)


def _at_least(stood: Judgement, judged: Judgement) -> Judgement:
    """An edit never lowers anything; where policy names other reviewers for the edited call, they decide."""
    if judged.verdict != "hold":
        return stood
    merged = policies.stricter(stood, judged)
    if not authority.other_reviewers(stood, judged):
        return merged
    return dataclasses.replace(merged, reviewers=judged.reviewers, rule=judged.rule, why=judged.why)


def proposal(request: Request, call: Call[Any]) -> Proposal:
    """A call of the request's run as policy sees it."""
    run = request.run
    made = agents.find(run.agent, run.agent_version)
    return Proposal(
        run=run.pk,
        agent=run.agent,
        agent_version=run.agent_version,
        agent_owner=made.owner if made else "",
        labels=run.labels,
        submitter=run.submitter_name,
        on_behalf_of=run.on_behalf_of,
        index=request.step.index,
        call=call,
        arguments=call.arguments,
    )


def argument_changes(before: str, after: str) -> list[dict[str, Any]]:
    """The top-level arguments that differ, as canonical JSON then and now: 1, 1.0 and true are three values."""
    then, later = _texts(before), _texts(after)
    return [
        {"name": name, "title": name, "kind": "argument", "then": then.get(name), "now": later.get(name)}
        for name in sorted(then.keys() | later.keys())
        if then.get(name) != later.get(name)
    ]


def _texts(arguments: str) -> dict[str, str]:
    return {name: values.canonical(value) for name, value in json.loads(arguments).items()}
