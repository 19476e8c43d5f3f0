"""Drafts, comments, questions, undone decisions; what rules say since. Old rows read as they did."""

import django.db.models.deletion
import runs.clock
from django.db import migrations, models


KEPT = """
CREATE TRIGGER undo_append_only BEFORE UPDATE OR DELETE ON approvals_undo
  FOR EACH ROW EXECUTE FUNCTION abeyance_keep();
CREATE TRIGGER comment_append_only BEFORE UPDATE OR DELETE ON approvals_comment
  FOR EACH ROW EXECUTE FUNCTION abeyance_keep();
"""

FORGET = """
DROP TRIGGER undo_append_only ON approvals_undo;
DROP TRIGGER comment_append_only ON approvals_comment;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('approvals', '0004_pending_in_order'),
    ]

    operations = [
        migrations.CreateModel(
            name='Comment',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.IntegerField(help_text='The revision that stood.')),
                ('person_id', models.CharField(max_length=100)),
                ('person_name', models.CharField(max_length=200)),
                ('text', models.TextField()),
                ('made_at', models.DateTimeField(db_default=runs.clock.Now())),
            ],
            options={
                'ordering': ('made_at', 'id'),
            },
        ),
        migrations.CreateModel(
            name='Delegation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('hop', models.IntegerField()),
                ('from_id', models.CharField(max_length=100)),
                ('from_name', models.CharField(max_length=200)),
                ('to_id', models.CharField(max_length=100)),
                ('to_name', models.CharField(max_length=200)),
                ('reason', models.TextField(blank=True)),
                ('made_at', models.DateTimeField(db_default=runs.clock.Now())),
            ],
            options={
                'ordering': ('hop',),
            },
        ),
        migrations.CreateModel(
            name='Draft',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('person_id', models.CharField(max_length=100)),
                ('opened', models.JSONField(default=list, help_text='Names of the sections that were opened.')),
                ('basis', models.JSONField(default=dict, help_text='Answers to the basis questions, by their id.')),
                ('seen', models.JSONField(default=list, help_text='Names of the changed facts that were ticked.')),
                ('note', models.TextField(blank=True)),
                ('edited', models.TextField(help_text='Canonical JSON of the arguments as edited.', null=True)),
                ('changed_at', models.DateTimeField(db_default=runs.clock.Now())),
            ],
        ),
        migrations.CreateModel(
            name='Inquiry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.IntegerField(help_text='The revision it is about.')),
                ('person_id', models.CharField(max_length=100)),
                ('person_name', models.CharField(max_length=200)),
                ('text', models.TextField()),
                ('made_at', models.DateTimeField(db_default=runs.clock.Now())),
                ('answer', models.TextField(blank=True)),
                ('answered_by', models.CharField(blank=True, max_length=200)),
                ('answered_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'ordering': ('made_at', 'id'),
            },
        ),
        migrations.CreateModel(
            name='Snooze',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('person_id', models.CharField(max_length=100)),
                ('until', models.DateTimeField()),
            ],
        ),
        migrations.CreateModel(
            name='StepUp',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('person_id', models.CharField(max_length=100)),
                ('session', models.CharField(help_text="SHA-256 of the session's key.", max_length=64)),
                ('digest', models.CharField(max_length=64)),
                ('verb', models.CharField(max_length=10)),
                ('method', models.CharField(help_text='totp, webauthn, recovery_codes', max_length=20)),
                ('made_at', models.DateTimeField(db_default=runs.clock.Now())),
                ('used_at', models.DateTimeField(blank=True, null=True)),
            ],
            options={
                'ordering': ('made_at',),
            },
        ),
        migrations.CreateModel(
            name='Undo',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('person_id', models.CharField(max_length=100)),
                ('person_name', models.CharField(max_length=200)),
                ('reason', models.TextField(blank=True)),
                ('door', models.CharField(max_length=20)),
                ('made_at', models.DateTimeField(db_default=runs.clock.Now())),
            ],
            options={
                'ordering': ('made_at', 'id'),
            },
        ),
        migrations.RemoveConstraint(
            model_name='decision',
            name='decision_once_a_person_and_revision',
        ),
        migrations.AddField(
            model_name='decision',
            name='basis',
            field=models.JSONField(default=list, help_text='The questions that were asked, each with its answer.'),
        ),
        migrations.AddField(
            model_name='decision',
            name='nth',
            field=models.IntegerField(db_default=0, default=0, help_text='How many of theirs on this revision were undone before.'),
        ),
        migrations.AddField(
            model_name='decision',
            name='step_up',
            field=models.CharField(blank=True, db_default='', default='', help_text='How they showed again who they are.', max_length=20),
        ),
        migrations.AddField(
            model_name='request',
            name='extensions',
            field=models.IntegerField(db_default=0, default=0, help_text='How often somebody asked for more time.'),
        ),
        migrations.AddField(
            model_name='request',
            name='reserved_by_id',
            field=models.CharField(blank=True, db_default='', default='', max_length=100),
        ),
        migrations.AddField(
            model_name='request',
            name='reserved_by_name',
            field=models.CharField(blank=True, db_default='', default='', max_length=200),
        ),
        migrations.AddField(
            model_name='request',
            name='reserved_until',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='rule',
            name='blind',
            field=models.BooleanField(db_default=False, default=False, help_text="Reviewers see each other's answers after their own."),
        ),
        migrations.AddField(
            model_name='rule',
            name='bulk_ok',
            field=models.BooleanField(db_default=False, default=False, help_text='Small ones (R1) may be approved together.'),
        ),
        migrations.AddField(
            model_name='rule',
            name='fixed_because',
            field=models.CharField(blank=True, db_default='', default='', help_text='Why nobody can ask for more time; empty: they can.', max_length=200),
        ),
        migrations.AddConstraint(
            model_name='decision',
            constraint=models.UniqueConstraint(fields=('revision', 'person_id', 'nth'), name='decision_once_a_person_and_revision'),
        ),
        migrations.AddField(
            model_name='comment',
            name='request',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='comments', to='approvals.request'),
        ),
        migrations.AddField(
            model_name='delegation',
            name='request',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='delegations', to='approvals.request'),
        ),
        migrations.AddField(
            model_name='draft',
            name='revision',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='drafts', to='approvals.revision'),
        ),
        migrations.AddField(
            model_name='inquiry',
            name='request',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='inquiries', to='approvals.request'),
        ),
        migrations.AddField(
            model_name='snooze',
            name='request',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='snoozes', to='approvals.request'),
        ),
        migrations.AddField(
            model_name='stepup',
            name='request',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='step_ups', to='approvals.request'),
        ),
        migrations.AddField(
            model_name='undo',
            name='decision',
            field=models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='undone', to='approvals.decision'),
        ),
        migrations.AddIndex(
            model_name='delegation',
            index=models.Index(fields=['from_id', 'request'], name='delegation_by_from'),
        ),
        migrations.AddConstraint(
            model_name='delegation',
            constraint=models.UniqueConstraint(fields=('request', 'hop'), name='delegation_hop_once_a_request'),
        ),
        migrations.AddConstraint(
            model_name='delegation',
            constraint=models.CheckConstraint(condition=models.Q(('hop__range', (1, 3))), name='delegation_at_most_three_hops'),
        ),
        migrations.AddConstraint(
            model_name='draft',
            constraint=models.UniqueConstraint(fields=('revision', 'person_id'), name='draft_one_a_person_and_revision'),
        ),
        migrations.AddConstraint(
            model_name='inquiry',
            constraint=models.UniqueConstraint(condition=models.Q(('answered_at__isnull', True)), fields=('request',), name='inquiry_one_open_a_request'),
        ),
        migrations.AddIndex(
            model_name='snooze',
            index=models.Index(fields=['person_id', 'until'], name='snooze_of_person'),
        ),
        migrations.AddConstraint(
            model_name='snooze',
            constraint=models.UniqueConstraint(fields=('request', 'person_id'), name='snooze_one_a_person_and_request'),
        ),
        migrations.AddIndex(
            model_name='stepup',
            index=models.Index(fields=['person_id', 'request'], name='step_up_of_person'),
        ),
        migrations.RunSQL(KEPT, FORGET),
    ]
