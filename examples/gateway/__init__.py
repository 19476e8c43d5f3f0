"""A small payments-and-tickets service, run as a process of its own: `python -m examples.gateway`.

Standard library only, loopback only, its own SQLite file. `seed` is what it holds at first, `store` the
file and the calls it has received, `service` carries a call out (`payments`, `mailings`, `purchasing`,
`office`), `faults` how it fails on request, `server` the HTTP in front. It knows nothing of Abeyance: to the
agents it is somebody else's system, reached over the network.
"""
