"""The command line of daskwire."""
