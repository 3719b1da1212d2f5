"""A small toolkit over twisted.web and Klein: limits, deadlines, routing, CORS. It knows nothing of the chain.

From the bottom to the top: what a response, a request, a field and a route are (``responses``, ``request``,
``field_types``, ``routes``); limits and budgets (``proxies``, ``rate_limits``, ``unsent``, ``connections``);
the call of a route (``api``) and branches of the resource tree (``resources``); what the connections of a site share
(``site_state``); the two parsers (``fast_path``, ``slow_path``); one connection (``channel``); and the ``site``.
"""
