"""A container's processes and files: LXC, mounts, control groups, the tree over its template."""
