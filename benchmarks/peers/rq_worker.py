"""A plain worker of RQ's for LangGraph's jobs, on the queue that has its class's name.

python rq_worker.py SimpleWorker|Worker
"""

import os
import sys

import redis
import rq
import rq_job  # noqa: F401 - imported before it forks, so that no job pays for it

if __name__ == "__main__":
    kind = sys.argv[1]
    connection = redis.Redis.from_url(os.environ["BENCH_QUEUE"])
    getattr(rq, kind)([kind], connection=connection).work(logging_level="ERROR")
