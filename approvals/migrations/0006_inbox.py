"""The inbox in its order for each group and tier; and what a person decided, the newest first."""

from django.db import migrations, models

import approvals.models.request

PENDING = models.Q(('state__in', ['needs_info', 'open']))


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0005_desk'),
    ]

    operations = [
        migrations.RemoveIndex(
            model_name='request',
            name='request_pending_of_group',
        ),
        migrations.AddIndex(
            model_name='request',
            index=models.Index(models.F('group'), models.F('tier'), approvals.models.request.Ends(), models.F('ref'), condition=PENDING, name='request_pending_by_end'),
        ),
        migrations.AddIndex(
            model_name='request',
            index=models.Index(models.F('group'), models.F('tier'), approvals.models.request.Due(), models.F('ref'), condition=PENDING, name='request_pending_by_due'),
        ),
        migrations.AddIndex(
            model_name='decision',
            index=models.Index(fields=['person_id', '-made_at'], name='decision_of_person'),
        ),
    ]
