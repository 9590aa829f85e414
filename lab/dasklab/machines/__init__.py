"""From the inventory to running machines: observe an endpoint, plan API calls, apply them."""
