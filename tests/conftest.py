"""Fixtures that every test may ask for: real servers, installed and started when first needed."""

pytest_plugins = [
    "tests.services.azure",
    "tests.services.google",
    "tests.services.kafka",
    "tests.services.s3",
    "tests.spark",
]
