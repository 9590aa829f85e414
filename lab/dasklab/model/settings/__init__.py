"""What a trial can set or measure, each fact in one place: NICs, impairments, workloads, metrics."""
