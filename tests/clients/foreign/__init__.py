"""Kafka clients of other languages, each behind one small program."""
