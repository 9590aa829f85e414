"""From the inventory to running machines: observe, plan, apply over the Proxmox API."""
