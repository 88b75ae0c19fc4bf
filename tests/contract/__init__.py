"""Contract suites: what every backend of a port must do."""
