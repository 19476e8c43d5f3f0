"""Where tries and used codes are counted for all web processes together, and a step-up is found by its age."""

from django.db import migrations

CREATE = """
CREATE TABLE approvals_counter (
  cache_key varchar(255) NOT NULL PRIMARY KEY, value text NOT NULL, expires timestamptz NOT NULL
);
CREATE INDEX approvals_counter_expires ON approvals_counter (expires);
"""


class Migration(migrations.Migration):
    dependencies = [("approvals", "0006_inbox")]
    operations = [migrations.RunSQL(CREATE, "DROP TABLE approvals_counter")]
