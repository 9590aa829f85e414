"""The network of a node: its namespace, bridges, NICs of guests, rate caps, and links between nodes."""
