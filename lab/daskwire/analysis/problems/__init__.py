"""Find what is wrong with the network, the cluster or the capture, and rank it by what it cost."""
