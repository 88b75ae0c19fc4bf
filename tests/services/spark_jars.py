"""The connectors of Spark itself for Delta, Iceberg and Kafka, from Maven: what users read Lakebed's tables with on the JVM.

They are jars for `spark.jars`; Lakebed needs none of them.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.services.processes import install, install_lock
from tests.services.requirement import require

_POM = Path(__file__).parent / "java" / "spark-pom.xml"


def spark_jars() -> list[Path]:
    """Every jar of the connectors; fetched once per machine, each checked against its published sum."""
    digest = hashlib.sha256(_POM.read_bytes()).hexdigest()[:16]
    with install_lock("spark-jars") as cache:
        folder = cache / f"spark-jars-{digest}"
        if not folder.exists():
            maven = shutil.which("mvn") or require("spark-jars", "there is no Maven to install them with")
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={partial}"]
            install("spark-jars", [maven, "-q", "-B", "--strict-checksums", "-f", _POM, *goal])
            partial.rename(folder)
    return sorted(folder.glob("*.jar"))


def connector_settings(root: str | Path, *, catalog: str = "lakebed") -> Mapping[str, str]:
    """Settings of a session that reads `catalog`.NAMESPACE.TABLE by Iceberg's and paths by Delta's connector.

    `root` is a folder whose Iceberg catalog is the SQLite file in it; the tables in it belong to the catalog of this name.
    """
    name = f"spark.sql.catalog.{catalog}"
    return {
        "spark.jars": ",".join(str(jar) for jar in spark_jars()),
        "spark.sql.extensions": ",".join(
            (
                "io.delta.sql.DeltaSparkSessionExtension",
                "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            )
        ),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        name: "org.apache.iceberg.spark.SparkCatalog",
        f"{name}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        f"{name}.uri": f"jdbc:sqlite:file:{root}/catalog.sqlite",
        f"{name}.warehouse": str(root),
        f"{name}.jdbc.schema-version": "V1",
    }
