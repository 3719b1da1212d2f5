"""SVC-PAY: payment requests, verification and proofs (docs/payments.md), and webhooks (docs/webhooks.md).

Of a payment event, watch.py decides that there is one, watch_repository.py writes it to disk, dispatcher.py and
sender.py send it in the order of delivery_scheduler.py, and retry_policy.py says when a failed attempt is repeated.
"""
