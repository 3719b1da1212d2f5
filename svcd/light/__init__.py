"""Proofs that a client checks with the genesis hash alone (docs/protocol.md 13). Pure functions of values."""
