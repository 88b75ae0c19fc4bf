"""Real servers for tests."""
