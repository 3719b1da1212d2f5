"""A stranger's Debian: a fresh system under systemd on which docs/operations.md is followed to the letter."""
