"""From packets to streams of bytes, and how the network treated them."""
