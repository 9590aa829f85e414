"""Disk images: the storage and its volumes, qemu-img, and the golden image that guests are cloned from."""
