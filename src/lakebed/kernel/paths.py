"""Where the logs of a root lie, spelled once."""

from __future__ import annotations

import re

from lakebed.errors import Invalid

ROOT_FILE = "lakebed.json"
CLUSTER_LOG, LAKE_LOG = "cluster", "lake"
DOMAINS_MAX = 1000
_LOG_NAME = re.compile(r"cluster|lake|domain=[0-9]{2,3}")


def domain_log(domain: int) -> str:
    """`domain=00`."""
    return f"domain={domain:02d}"


def log_prefix(name: str) -> str:
    """`meta/domain=00/_delta_log`: where in a root the log `name` lies."""
    if not _LOG_NAME.fullmatch(name):
        raise Invalid(f"no log is called {name!r}", "Use cluster, lake or domain=NN, such as domain=00")
    return f"meta/{name}/_delta_log"
