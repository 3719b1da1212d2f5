"""The command `svc`: what wallets, merchants and operators do from a shell."""
