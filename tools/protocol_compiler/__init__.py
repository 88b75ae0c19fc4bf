"""Turns kio's definitions of Kafka's messages into flat functions; see `tools/compile_protocol.py`."""
