"""/nodes/{node}/lxc."""
