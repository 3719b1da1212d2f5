"""The rules of the chain, checks of proofs and the reading of texts: the files of svcd, to which these are links."""
