"""svcd: a node of a blockchain network with a payment layer, built on Twisted."""
