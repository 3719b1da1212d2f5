"""SVC-PAY: payment requests, verification and proofs (docs/payments.md), and webhooks (docs/webhooks.md)."""
