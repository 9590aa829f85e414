"""/nodes/{node}/qemu."""
