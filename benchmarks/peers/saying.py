"""The peers' end of the line: one JSON object in, one out. Runs in their environment."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

Verb = Callable[..., dict[str, Any]]


def say(**answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def serve(verbs: dict[str, Verb]) -> None:
    """Says that it is ready, then does what it is told until its input is closed. Never returns: threads that
    wait would keep the process."""
    say(ready=True)
    for line in sys.stdin:
        told = json.loads(line)
        say(**verbs[told.pop("do")](**told))
    os._exit(0)
