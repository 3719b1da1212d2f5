import logging

from django.utils.translation import gettext_lazy as _
from pretix.base.plugins import PluginConfig

from . import __version__


class PluginApp(PluginConfig):
    default = True
    name = "pretix_svc_pay"
    verbose_name = _("SVC coins")
    default_auto_field = "django.db.models.BigAutoField"

    class PretixPluginMeta:
        name = _("SVC coins")
        author = "svcd"
        version = __version__
        category = "PAYMENT"
        description = _("Sell tickets for coins of a svcd network, with a node of your own and without a payment provider.")
        visible = True
        compatibility = "pretix>=2026.8.0"
        settings_links = [
            ((_("Payment"), _("SVC coins")), "control:event.settings.payment.provider", {"provider": "svc_pay"}),
        ]

    def ready(self):
        from . import signals  # NOQA

        # httpx logs every URL that it calls, and the URL of a rate may contain a key.
        logging.getLogger("httpx").setLevel(logging.WARNING)
