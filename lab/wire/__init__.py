"""From a capture file to what Dask said: pcap -> tcp -> comm -> ops. Knows nothing of labs."""
