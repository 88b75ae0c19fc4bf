"""The HTTP port: health, readiness and metrics."""

from lakebed.http.fleet import FleetPages, merged
from lakebed.http.pages import Page, Pages
from lakebed.http.server import HttpServer

__all__ = ["FleetPages", "HttpServer", "Page", "Pages", "merged"]
