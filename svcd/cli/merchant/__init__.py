"""The commands of a merchant: payment requests, payment status, payment proofs and webhooks."""
