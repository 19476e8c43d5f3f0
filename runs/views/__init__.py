"""The pages of runs. `pages` are the list, one run and one snapshot with the verbs on them; what each further
concern shows or does has a room of its own beside it."""

from runs.views.pages import may_pause, may_resume, tell_with

__all__ = ["may_pause", "may_resume", "tell_with"]
