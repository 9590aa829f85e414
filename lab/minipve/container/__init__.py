"""What is done to a container as a whole: paper (config), tree and process (container) brought together."""
