"""Settings: frozen values from `lakebed.yaml`, the environment and the command line; never components.

A value that is wrong anywhere is refused before anything starts, with the place it stands in and what is allowed there.
"""

from lakebed.config.load import DEFAULT_FILE, Loaded, load_settings
from lakebed.config.render import default_file_text, effective_json, effective_text
from lakebed.config.settings import (
    BrokerSettings,
    FetchSettings,
    GroupsSettings,
    HttpSettings,
    KafkaSettings,
    KernelSettings,
    LeaseSettings,
    LoggingSettings,
    LogStoreSettings,
    ObjectSettings,
    RoutingSettings,
    Settings,
    StreamSettings,
    TopicSettings,
    WalSettings,
)
from lakebed.config.table_settings import SettleSettings, SparkSettings, TablesSettings
from lakebed.config.values import Address, ByteCount, Seconds, Secret, parse_address

__all__ = [
    "DEFAULT_FILE",
    "Address",
    "BrokerSettings",
    "ByteCount",
    "FetchSettings",
    "GroupsSettings",
    "HttpSettings",
    "KafkaSettings",
    "KernelSettings",
    "LeaseSettings",
    "Loaded",
    "LogStoreSettings",
    "LoggingSettings",
    "ObjectSettings",
    "RoutingSettings",
    "Seconds",
    "Secret",
    "Settings",
    "SettleSettings",
    "SparkSettings",
    "StreamSettings",
    "TablesSettings",
    "TopicSettings",
    "WalSettings",
    "default_file_text",
    "effective_json",
    "effective_text",
    "load_settings",
    "parse_address",
]
