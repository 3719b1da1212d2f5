"""The network of nodes: signed handshakes, the address book, peers and bans, relay and synchronisation."""
