"""Parse packets into TCP segments: link, tunnels, IP, TCP and its options."""
