"""What a VM's disks are: storages, volumes, drives, and the golden image."""
