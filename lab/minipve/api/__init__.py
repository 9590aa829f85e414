"""The handlers of the API, in folders that mirror its URLs, and the way from a request to a handler."""
