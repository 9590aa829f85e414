"""What an endpoint's answer, or its silence, means: one line that says what, where and what to do."""

from __future__ import annotations

from urllib.parse import urlsplit

import requests

from dasklab.errors import LabError

# What stands between the API and the daemons behind it says so by these; a read is worth another try.
GATEWAY = {
    **dict.fromkeys((502, 503, 504), "what stands before the API reaches nothing behind it"),
    595: "pveproxy reaches neither the daemon nor the node that is meant",
    596: "the connection between pveproxy and the daemon behind it broke",
    597: "the daemon's answer broke off",
    598: "pveproxy gave the request up",
    599: "pveproxy could not make sense of the request",
}
GATEWAY_HINT = "try again; if it stays so, on the node: systemctl status pveproxy pvedaemon"
AGAIN_HINT = "whether it was done is not known: run the same command again, it looks at what is there first"
CA_HINT = "give the endpoint's CA as ca_file (PROXMOX_CA_FILE; on a node: /etc/pve/pve-root-ca.pem)"
NAME_HINT = "go to it (PROXMOX_HOST) by a name or an address that its certificate names"
PORT_HINT = "is that the API's address and port (8006), with no proxy in between?"
LOCK_HINT = "let that end; if nothing runs, as root on the node: qm unlock VMID"
REACH_HINT = "is it running, is the address right, and does no firewall stand between?"


class CallError(LabError):
    """A call that was refused or not answered: ``cause`` without saying which call it was."""

    def __init__(self, where: str, cause: str, hint: str | None = None) -> None:
        super().__init__(f"{where}: {cause}", hint)
        self.cause = cause


class TransientError(CallError):
    """The answer got lost, or nobody took the call: worth another try.

    ``sent`` is whether the endpoint may have got the call: a read is repeated all the same, a change is not.
    ``known_only`` says that another try is worth it only where there were answers before: else the address is
    wrong, and whoever wrote it waits for the message.
    """

    def __init__(
        self, where: str, cause: str, hint: str | None, *, sent: bool = True, known_only: bool = False
    ) -> None:
        super().__init__(where, cause, hint)
        self.sent = sent
        self.known_only = known_only

    def is_worth_another_try(self, *, read: bool, known: bool) -> bool:
        """Whether to make the call again: a ``read`` or not, an endpoint ``known`` to answer or not."""
        return (read or not self.sent) and (known or not self.known_only)


class ForbiddenError(CallError):
    """The token lacks a privilege for this call."""


class RejectedError(CallError):
    """The token itself is not accepted."""


def complete(answer: requests.Response, url: str) -> None:
    """Check an answer before proxmoxer reads it, and complete its reason.

    proxmoxer takes an error's text from the status line, which has the first line only; the body has all.

    Raises:
        CallError: this is no answer of a Proxmox VE API.
    """
    is_error = answer.status_code >= 400
    try:
        body = answer.json()
    except ValueError:  # beside an error status, an empty body or a gateway's page
        body = {} if is_error else None
    if not isinstance(body, dict) or not (is_error or "data" in body):
        start = " ".join(answer.text[:60].split())
        call = f"{answer.request.method} {urlsplit(answer.request.url or '').path.removeprefix('/api2/json')}"
        raise CallError(f"{url}: {call}", f"this is no answer of a Proxmox VE API: {start!r}", PORT_HINT)
    reason = str(body.get("message") or answer.reason or "no reason given")
    answer.reason = "; ".join(reason.strip().splitlines())


def refusal(status: int, reason: str, errors: object, call: str, url: str, token: str) -> CallError:
    """Return the error for a refused call.

    Args:
        status: HTTP status, or one of those that pveproxy adds.
        reason: the endpoint's own words.
        errors: the endpoint's words about single parameters, by name, if it has any.
        call: method and path.
        url: the endpoint's address.
        token: the token's full name.
    """
    if status == 401:
        hint = "check its id and its secret; 'dasklab doctor' prints the lines that make one"
        return RejectedError(f"{url}: token {token}", f"it is not accepted ({reason})", hint)
    if status == 403:
        hint = "'dasklab doctor' prints the lines that give the missing privilege"
        return ForbiddenError(f"{url}: {call}", reason, hint)
    if status in GATEWAY:
        hint = GATEWAY_HINT if call.startswith("GET ") else AGAIN_HINT
        return TransientError(f"{url}: {call}", f"{status} {reason} ({GATEWAY[status]})", hint)
    by_parameter = errors if isinstance(errors, dict) else {}
    details = "; ".join(f"{k}: {v}".strip() for k, v in by_parameter.items() if isinstance(v, str))
    cause = f"{status} {reason}{f' ({details})' if details else ''}"
    return CallError(f"{url}: {call}", cause, LOCK_HINT if "is locked" in reason else None)


def silence(error: requests.RequestException, call: str, url: str) -> CallError:
    """Why there was no answer."""
    cause, read = _innermost(error), call.startswith("GET ")
    if isinstance(error, requests.exceptions.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        hint = NAME_HINT if "mismatch" in str(error) else CA_HINT
        return CallError(url, f"its certificate cannot be verified ({_words(cause)})", hint)
    if "WRONG_VERSION_NUMBER" in str(error):
        return CallError(url, "what listens there does not speak TLS", PORT_HINT)
    if isinstance(error, requests.exceptions.ConnectTimeout):
        text = "nothing answers there, the time to connect ran out"
        return TransientError(url, text, REACH_HINT, sent=False, known_only=True)
    hint = GATEWAY_HINT if read else AGAIN_HINT
    if isinstance(error, requests.exceptions.ReadTimeout):
        return TransientError(f"{url}: {call}", "no answer in time", hint, known_only=True)
    if isinstance(cause, ConnectionRefusedError):
        return TransientError(url, "nothing listens there (connection refused)", REACH_HINT, sent=False)
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return TransientError(f"{url}: {call}", f"the answer broke off ({_words(cause)})", hint)
    if isinstance(error, requests.ConnectionError):
        if _never_connected(error):
            text = f"it cannot be reached ({_words(cause)})"
            return TransientError(url, text, REACH_HINT, sent=False, known_only=True)
        return TransientError(f"{url}: {call}", f"the connection was cut ({_words(cause)})", hint)
    return CallError(url, f"it cannot be reached ({_words(cause)})", REACH_HINT)


def _never_connected(error: requests.ConnectionError) -> bool:
    """Did already the connection fail (no such name, no route)? urllib3 tells by its own error's name."""
    return any(word in repr(error) for word in ("NewConnectionError", "NameResolutionError", "ProxyError"))


def _innermost(error: BaseException) -> BaseException:
    """The error at the bottom of those that requests and urllib3 wrapped around it."""
    inner = getattr(error, "reason", None) or error.__cause__ or error.__context__
    inner = inner or next((a for a in reversed(error.args) if isinstance(a, BaseException)), None)
    return _innermost(inner) if isinstance(inner, BaseException) else error


def _words(error: BaseException) -> str:
    said = getattr(error, "verify_message", None) or getattr(error, "strerror", None) or error
    return str(said) or type(error).__name__
