"""The one exception of the decoder: whatever a capture file holds, nothing else comes out of it."""

from __future__ import annotations


class WireError(Exception):
    """A capture that cannot be read, or a product that cannot be made from it; the message is one line."""
