"""Decisions and revisions are never changed or deleted: voiding, undoing and using one are other rows."""

from django.conf import settings
from django.db import migrations

KEPT = """
CREATE TRIGGER decision_append_only BEFORE UPDATE OR DELETE ON approvals_decision
  FOR EACH ROW EXECUTE FUNCTION abeyance_keep();
CREATE TRIGGER policyversion_append_only BEFORE UPDATE OR DELETE ON approvals_policyversion
  FOR EACH ROW EXECUTE FUNCTION abeyance_keep();
CREATE TRIGGER revision_append_only BEFORE UPDATE OR DELETE ON approvals_revision
  FOR EACH ROW EXECUTE FUNCTION abeyance_keep();
"""

FORGET = """
DROP TRIGGER decision_append_only ON approvals_decision;
DROP TRIGGER policyversion_append_only ON approvals_policyversion;
DROP TRIGGER revision_append_only ON approvals_revision;
"""

TRUNCATE = """
CREATE TRIGGER decision_no_truncate BEFORE TRUNCATE ON approvals_decision
  FOR EACH STATEMENT EXECUTE FUNCTION abeyance_keep();
"""


def refuse_truncate(apps, schema_editor):
    if settings.HISTORY_REFUSES_TRUNCATE:
        schema_editor.execute(TRUNCATE)


class Migration(migrations.Migration):
    dependencies = [("approvals", "0001_tables"), ("runs", "0003_history")]

    operations = [
        migrations.RunSQL(KEPT, FORGET),
        migrations.RunPython(refuse_truncate, migrations.RunPython.noop),
    ]
