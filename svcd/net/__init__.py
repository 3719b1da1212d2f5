"""Outgoing HTTP without SSRF: which URLs and addresses may be called, and a client that connects to nothing else."""
