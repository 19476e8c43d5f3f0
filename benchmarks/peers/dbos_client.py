"""DBOS Transact: the process that approves, beside the one that runs the workflows.

python dbos_client.py DATABASE_URL
"""

import sys
import time
from typing import Any

from dbos import DBOSClient
from saying import serve

client = DBOSClient(system_database_url=sys.argv[1])


def do_approve(names: list[str], pause: float) -> dict[str, Any]:
    """When `send` was called for each."""
    asked = {}
    for name in names:
        asked[name] = time.monotonic()
        client.send(name, "yes", "approval")
        time.sleep(pause)
    return {"asked": asked}


if __name__ == "__main__":
    serve({"approve": do_approve})
