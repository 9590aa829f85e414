"""What is done to a VM as a whole: paper (config), disks (image) and process (machine) brought together."""
