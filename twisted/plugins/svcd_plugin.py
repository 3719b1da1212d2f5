"""Tells twistd that `svcd` exists; imported at every rebuild of Twisted's plugin cache, so it imports nothing of ours."""

from twisted.application.service import ServiceMaker

svcd = ServiceMaker("svcd", "svcd.tap", "A blockchain node with a payment layer", "svcd")
