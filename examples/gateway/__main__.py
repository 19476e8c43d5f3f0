"""`python -m examples.gateway --port 8900 [--db PATH]`: serve until SIGTERM or Ctrl-C, then end with 0.

Port 0 takes a free one; the line printed when ready names it.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from types import FrameType

from examples.gateway.server import Server
from examples.gateway.service import QUOTE_SECONDS
from examples.gateway.store import Store

PROJECT = Path(__file__).resolve().parent.parent.parent


def main() -> int:
    options = _options()
    store = Store(options.db)
    try:
        server = Server(options.port, store, quote_seconds=options.quote_seconds, verbose=options.verbose)
    except OSError as error:
        store.close()
        print(f"gateway: cannot listen on port {options.port}: {error.strerror}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)
    try:
        print(f"gateway: http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever(poll_interval=0.1)
    finally:
        # A second signal must not interrupt the closing.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        server.server_close()
        store.close()
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.gateway", description="The demo's outside system."
    )
    parser.add_argument("--port", type=int, default=8900)
    parser.add_argument(
        "--db", type=Path, default=PROJECT / "var" / "gateway.sqlite3", help="the SQLite file"
    )
    parser.add_argument("--quote-seconds", type=float, default=QUOTE_SECONDS, help="how long a quote holds")
    parser.add_argument(
        "--verbose", action="store_true", help="print a line for each call that may change something"
    )
    return parser.parse_args()


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main())
