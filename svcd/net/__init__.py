"""Reaching out safely: which URLs and addresses may be called, and HTTP calls that go nowhere else."""
