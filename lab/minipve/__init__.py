"""The local endpoint: speaks the Proxmox VE API and runs real QEMU, the lab's one road to a hypervisor."""
