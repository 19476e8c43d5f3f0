"""The pages of runs, a room each: `listing`; `pages`, one run and one snapshot, which `standing` and `timeline` tell
of; `controls`, the verbs on them, offered by `rights`; and one for each further concern."""

from runs.views.pages import tell_with
from runs.views.rights import may_pause, may_resume
from runs.views.timeline import Event, tell_decisions_with

__all__ = ["Event", "may_pause", "may_resume", "tell_decisions_with", "tell_with"]
