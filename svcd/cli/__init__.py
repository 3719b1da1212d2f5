"""The command `svc` for wallets, merchants and operators."""
