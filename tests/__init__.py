"""Tests, by what they need."""
