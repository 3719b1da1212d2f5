"""The commands of a wallet: keys, words, keyfiles and transfers."""
