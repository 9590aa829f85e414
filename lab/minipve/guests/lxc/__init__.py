"""A container's processes and files: LXC, mounts, control groups, user IDs, the root file system."""
