"""The command `svc` with what works on a stopped node: the one place that sees the wallet and the node."""
