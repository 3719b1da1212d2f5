from django.urls import re_path
from pretix.multidomain import event_url

from .views import StateView, TestView, webhook

event_patterns = [
    event_url(r"^svc_pay/webhook/$", webhook, name="webhook", require_live=False),
    re_path(
        r"^svc_pay/state/(?P<order>[^/]+)/(?P<hash>[^/]+)/(?P<payment>[0-9]+)/$", StateView.as_view(), name="state",
    ),
]

urlpatterns = [
    re_path(
        r"^control/event/(?P<organizer>[^/]+)/(?P<event>[^/]+)/svc_pay/test/$", TestView.as_view(), name="test",
    ),
]
