"""The local endpoint: speaks the Proxmox VE API and runs real QEMU behind it, so that the lab has one road to a hypervisor."""
