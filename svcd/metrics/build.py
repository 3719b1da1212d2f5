"""Which program this is."""

from collections.abc import Iterator
from platform import python_version

from attrs import frozen
from prometheus_client.core import InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from svcd.chain.params import NetworkParams
from svcd.node.status import PROTOCOL_VERSION, SOFTWARE_VERSION
from twisted import __version__ as twisted_version


@frozen(eq=False)
class BuildInfo(Collector):
    """Tells the versions, and the chain."""

    params: NetworkParams

    def collect(self) -> Iterator[Metric]:
        """The metric, which never changes."""
        versions = {
            "version": SOFTWARE_VERSION,
            "protocol": PROTOCOL_VERSION,
            "chain": self.params.chain_id,
            "python": python_version(),
            "twisted": twisted_version,
        }
        yield InfoMetricFamily("svcd_build", "Always 1; the labels say which program runs.", value=versions)
