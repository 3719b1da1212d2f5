"""The metrics of a node for Prometheus: one module for each subject (docs/monitoring.md "Metrics")."""
