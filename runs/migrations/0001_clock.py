"""The one clock, before any table whose columns default to it."""

from django.db import migrations

CLOCK = """
CREATE FUNCTION abeyance_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp()';
"""


class Migration(migrations.Migration):
    initial = True
    dependencies = []
    operations = [migrations.RunSQL(CLOCK, "DROP FUNCTION abeyance_now()")]
