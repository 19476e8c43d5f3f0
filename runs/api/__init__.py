"""REST for submitters: start runs, follow them, pause, resume and cancel them.

`views` parse, call one verb and answer; `bodies` and `parameters` refuse what cannot be read; `problem` makes
an answer of every refusal; `waiting` is the long-poll; `description` is the OpenAPI. What the verbs mean is
theirs, who may what is `callers'`.
"""
