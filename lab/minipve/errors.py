"""What goes wrong inside the endpoint, in PVE's shape: status, message, errors by parameter."""

from __future__ import annotations


class ApiError(Exception):
    """An answer that is not 200: ``message`` is the body's text, its first line the reason phrase.

    ``errors`` maps parameter names to texts (PVE's ``Parameter verification failed.``).
    """

    def __init__(self, message: str, status: int = 500, errors: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message if message.endswith("\n") or status == 501 else message + "\n"
        self.status = status
        self.errors = errors

    @property
    def reason(self) -> str:
        """The first line: PVE puts it into the status line."""
        return self.message.split("\n", 1)[0]


def parameter_error(**errors: str) -> ApiError:
    """400 with one text per parameter; keyword names use ``_`` where PVE's have ``-``."""
    return ApiError(
        "Parameter verification failed.", 400, {k.replace("_", "-"): v for k, v in errors.items()}
    )


def denied(detail: str = "") -> ApiError:
    """403 as PVE words it, e.g. ``Permission check failed (/vms/100, VM.Audit)``."""
    return ApiError("Permission check failed" + (f" ({detail})" if detail else ""), 403)


def text_of(error: Exception) -> str:
    """An error of the system or of a helper as one sentence, without Python's way of putting it."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: '{error.filename}'" if error.filename else error.strerror
    return str(error) or type(error).__name__


class UnauthorizedError(Exception):
    """401 before routing: PVE answers with a reason phrase, an empty body and three seconds of delay."""
