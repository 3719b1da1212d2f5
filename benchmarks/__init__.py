"""What the node does per second, as ratios against baselines measured in the same run (docs/performance.md)."""

import sys
from pathlib import Path

# The Python client, which is not installed for svcd, from its sources.
sys.path.append(str(Path(__file__).parent.parent / "clients" / "python" / "src"))
