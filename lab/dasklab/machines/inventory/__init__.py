"""The lab as its inventory describes it: hosts, addresses, settings, the endpoint."""
