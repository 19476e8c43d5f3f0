"""What a reviewer is shown: headline, consequence, facts then and now, text reveal, view digest.

Everything here is made by Abeyance from typed arguments; the agent's own words never stand in a headline or a
consequence. `shown` and `digests` say what was shown; `reveal` and `tree` draw text and values.
"""
