"""A real standalone Spark cluster on loopback, out of the pyspark package: a master and two workers."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark
import pytest

from tests.services.processes import answers, free_ports, running
from tests.services.requirement import require

WORKERS, WORKER_CORES, WORKER_MEMORY = 2, 1, "1g"
SPARK_HOME = Path(pyspark.__file__).parent


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the master, such as spark://127.0.0.1:7077."""
    with standalone_cluster(tmp_path_factory.mktemp("spark-cluster")) as master:
        yield master


@contextlib.contextmanager
def standalone_cluster(folder: Path) -> Iterator[str]:
    """Master and workers until the end of the block."""
    port, page, *worker_ports = free_ports(2 + 2 * WORKERS)
    address = f"spark://127.0.0.1:{port}"
    master = spark_class("org.apache.spark.deploy.master.Master")
    master += ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page)]
    with contextlib.ExitStack() as stack:
        own = folder / "master"
        stack.enter_context(
            running("spark", master, own, lambda: answers(port) and answers(page), spark_environment(own))
        )
        for number in range(WORKERS):
            own, own_port, own_page = (
                folder / f"worker-{number}",
                worker_ports[2 * number],
                worker_ports[2 * number + 1],
            )
            worker = spark_class("org.apache.spark.deploy.worker.Worker")
            worker += ["--host", "127.0.0.1", "--port", str(own_port), "--webui-port", str(own_page)]
            worker += ["-c", str(WORKER_CORES), "-m", WORKER_MEMORY, address]
            stack.enter_context(
                running("spark", worker, own, lambda log=own / "log": _is_registered(log), spark_environment(own))
            )
        yield address


def spark_class(main_class: str) -> list[str | Path]:
    """A command for one of Spark's own programs, started as its scripts start it."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        require("spark-cluster", "there is no Java to run it with")
    return [SPARK_HOME / "bin" / "spark-class", main_class]


def spark_environment(folder: Path) -> Mapping[str, str]:
    """Small, on loopback, everything it writes in `folder`; its Python is ours."""
    return {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_DAEMON_MEMORY": "512m",
        "PYSPARK_PYTHON": sys.executable,
    }


def _is_registered(log: Path) -> bool:
    """A worker says so when the master has taken it; before, jobs would wait for cores."""
    return "Successfully registered with master" in log.read_text(errors="replace")
