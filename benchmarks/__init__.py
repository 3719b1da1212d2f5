"""What the node does per second, as ratios against baselines measured in the same run (docs/performance.md)."""
