"""Two sides of the same work compared: what differs by more than chance explains, and because of what."""
