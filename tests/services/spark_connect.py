"""A real Spark Connect server on loopback, out of the pyspark package."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.services.processes import answers, free_port, running
from tests.services.spark_cluster import spark_class, spark_environment


@pytest.fixture(scope="session")
def spark_connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address, such as sc://127.0.0.1:15002."""
    with connect_server(tmp_path_factory.mktemp("spark-connect")) as address:
        yield address


@contextlib.contextmanager
def connect_server(folder: Path, conf: Mapping[str, str] | None = None) -> Iterator[str]:
    """The server, with two cores of its own, until the end of the block."""
    port = free_port()
    settings = {
        "spark.master": "local[2]",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        **(conf or {}),
    }
    command = spark_class("org.apache.spark.deploy.SparkSubmit")
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--driver-memory", "512m"]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command += ["spark-internal"]
    with running("spark-connect", command, folder, lambda: answers(port), spark_environment(folder)):
        yield f"sc://127.0.0.1:{port}"
