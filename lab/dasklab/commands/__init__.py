"""The commands of ``dasklab``: one module per command, and a few modules that several commands share."""
