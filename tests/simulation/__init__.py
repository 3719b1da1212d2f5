"""Many real nodes in one process, on one seeded clock and a network in memory: the same seed gives the same run."""
