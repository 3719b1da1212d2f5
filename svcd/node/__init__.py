"""The running chain: one write path for blocks, one for transfers, the verifier's threads and the miner."""
