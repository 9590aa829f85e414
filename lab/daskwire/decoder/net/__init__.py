"""Reassemble packets into byte streams, and measure what the network did to them."""
