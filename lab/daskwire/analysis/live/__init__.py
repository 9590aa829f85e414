"""Decode a capture while it is recorded, with bounded memory and disk space."""
