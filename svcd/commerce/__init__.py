"""Payments: what an order asks for, and whether the chain shows it paid (docs/payments.md)."""
