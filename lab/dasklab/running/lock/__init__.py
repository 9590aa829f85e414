"""One lock per lab: a file on this machine, and a note on the node."""
