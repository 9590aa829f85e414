"""minipve: a Proxmox VE API on one Linux machine, with real QEMU and LXC guests behind it."""
