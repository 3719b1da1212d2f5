from datetime import timedelta

import django.db.models.deletion
from django.db import migrations, models
from django.utils.timezone import now


def follow_open_attempts(apps, schema_editor):
    """The feed begins where it is read first, and asks once about each of them: what came before is found by that."""
    attempts = apps.get_model('pretix_svc_pay', 'Attempt').objects
    attempts.filter(payment__isnull=False, look_at__isnull=False).update(follow_until=now() + timedelta(days=30))


class Migration(migrations.Migration):

    dependencies = [
        ('pretix_svc_pay', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='attempt',
            name='told_height',
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='attempt',
            name='follow_until',
            field=models.DateTimeField(db_index=True, null=True),
        ),
        migrations.AddField(
            model_name='note',
            name='height',
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=models.Index(fields=['recipient', 'state'], name='svc_pay_recipient_state'),
        ),
        migrations.AddIndex(
            model_name='attempt',
            index=models.Index(fields=['recipient', 'height'], name='svc_pay_recipient_height'),
        ),
        migrations.CreateModel(
            name='Feed',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False)),
                ('recipient', models.CharField(max_length=128)),
                ('place', models.TextField(blank=True)),
                ('event', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='svc_pay_feeds', to='pretixbase.event')),
            ],
            options={
                'unique_together': {('event', 'recipient')},
            },
        ),
        migrations.RunPython(follow_open_attempts, migrations.RunPython.noop),
    ]
