"""The instance's network: a namespace, bridges, taps, rates."""
