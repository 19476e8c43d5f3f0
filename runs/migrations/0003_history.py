"""What the ORM cannot say: the text of a journal entry, and triggers that keep history as it was.

TRUNCATE is refused too, except where `HISTORY_REFUSES_TRUNCATE` is off: tests empty tables with it.
"""

from django.conf import settings
from django.db import migrations

# The one text of a journal row. jsonb would lose key order and refuse nothing we keep; json keeps bytes.
ENTRY = """
CREATE FUNCTION abeyance_entry(
  stream text, seq bigint, at timestamptz, actor_kind text, actor_id text, actor_name text,
  door text, verb text, detail text
) RETURNS bytea LANGUAGE sql STABLE AS $$
  SELECT convert_to(json_build_array(
    stream, seq, to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'),
    actor_kind, actor_id, actor_name, door, verb, detail)::text, 'UTF8')
$$;
"""

KEPT = """
CREATE FUNCTION abeyance_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is append-only: % is refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER journal_append_only BEFORE UPDATE OR DELETE ON runs_journalentry
  FOR EACH ROW EXECUTE FUNCTION abeyance_keep();
CREATE TRIGGER snapshot_append_only BEFORE UPDATE OR DELETE ON runs_snapshot
  FOR EACH ROW EXECUTE FUNCTION abeyance_keep();
CREATE TRIGGER fact_append_only BEFORE UPDATE OR DELETE ON runs_factreading
  FOR EACH ROW EXECUTE FUNCTION abeyance_keep();
"""

# Boundaries touch these rows often and no indexed column: leave room for updates in place.
STORAGE = """
ALTER TABLE runs_run SET (fillfactor = 70);
ALTER TABLE runs_step SET (fillfactor = 80);
"""


TRUNCATE = """
CREATE TRIGGER journal_no_truncate BEFORE TRUNCATE ON runs_journalentry
  FOR EACH STATEMENT EXECUTE FUNCTION abeyance_keep();
CREATE TRIGGER snapshot_no_truncate BEFORE TRUNCATE ON runs_snapshot
  FOR EACH STATEMENT EXECUTE FUNCTION abeyance_keep();
"""


def refuse_truncate(apps, schema_editor):
    if settings.HISTORY_REFUSES_TRUNCATE:
        schema_editor.execute(TRUNCATE)


class Migration(migrations.Migration):
    dependencies = [("runs", "0002_tables")]

    operations = [
        migrations.RunSQL(ENTRY, "DROP FUNCTION abeyance_entry"),
        migrations.RunSQL(KEPT, "DROP FUNCTION abeyance_keep CASCADE"),
        migrations.RunPython(refuse_truncate, migrations.RunPython.noop),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
    ]
