"""What the node measures, for Prometheus: a module for each room that has something to tell (docs/operations.md)."""
