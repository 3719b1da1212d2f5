"""The living chain: the one write path, the mempool, the verifier threads and the producer."""
