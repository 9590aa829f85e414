"""HTTP below the API: connections and their limits, bodies, certificates."""
