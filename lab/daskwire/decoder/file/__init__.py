"""Read capture files: bytes in, packet records out."""
