"""Capture files: bytes in, records of packets out."""
