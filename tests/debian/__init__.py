"""A fresh Debian under systemd, on which docs/operations.md is followed to the letter."""
