"""What the captures of a run say in its report."""
