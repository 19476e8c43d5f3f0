"""What is measured beside us: DBOS Transact, and LangGraph with its PostgreSQL checkpointer, alone and behind RQ.

`environment` makes their virtual environment, `process` talks to them. The other files run *in* that environment,
as scripts of their own: they import nothing of Abeyance.
"""
