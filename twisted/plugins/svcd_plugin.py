"""Tells twistd that `svcd` exists; Twisted imports it whenever it looks for plugins, so it imports nothing of ours."""

from twisted.application.service import ServiceMaker

svcd = ServiceMaker("svcd", "svcd.tap", "A blockchain node with a payment layer", "svcd")
