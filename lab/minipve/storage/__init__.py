"""The storage of a node: its directory, disk images, checks of files from others."""
