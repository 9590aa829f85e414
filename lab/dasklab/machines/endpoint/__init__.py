"""What an endpoint has, whether it suits a lab, and the calls that change it."""
