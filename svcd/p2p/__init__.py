"""The other nodes: signed handshakes, who is known and who is talked to, relay and synchronisation."""
