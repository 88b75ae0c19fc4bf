"""What the program tells about itself: logs, metrics and health, all handed in, none of them global.

Nothing here can stop the program: a log line that cannot be written is dropped, and no secret is ever written.
"""

from lakebed.observe.health import CheckResult, Health, HealthReport, Probe
from lakebed.observe.logs import Logger, Logs, correlated
from lakebed.observe.metrics import CONTENT_TYPE, Counter, Gauge, Histogram, Metrics, timed
from lakebed.observe.reach import Reach
from lakebed.observe.tallies import Count, Counted, Counts, Spread, Spreads, Tallies, Tally

__all__ = [
    "CONTENT_TYPE",
    "CheckResult",
    "Count",
    "Counted",
    "Counter",
    "Counts",
    "Gauge",
    "Health",
    "HealthReport",
    "Histogram",
    "Logger",
    "Logs",
    "Metrics",
    "Probe",
    "Reach",
    "Spread",
    "Spreads",
    "Tallies",
    "Tally",
    "correlated",
    "timed",
]
