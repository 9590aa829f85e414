"""What messages and segments mean: ``tables`` -> ``problems`` -> ``opening`` -> ``live``."""
