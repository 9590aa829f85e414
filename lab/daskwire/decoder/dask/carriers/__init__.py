"""What carries Dask's messages: plain TCP, TLS or WebSocket."""
