"""The demo: three agents, their tools, and a small outside world they act on.

`gateway` is that world, a process of its own behind HTTP. `world` holds the tools and facts that speak to
it, `agents` the agents, `policies` the rules and `demo` the people of a first start. Nothing here is imported by
`runs` or `approvals`, but for the command `demo`; the setting `AGENTS` names `examples.agents`.
"""
