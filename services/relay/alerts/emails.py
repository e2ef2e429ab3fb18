"""Sends an alert as an email by the configured SMTP server: a summary as the subject, the document as the body.

Never waits for the server without a deadline, and never counts a message as taken before the server has said so: one
that takes it and drops the connection before that gets it again, under the same Message-ID.
"""

from __future__ import annotations

import asyncio
import smtplib
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from typing import Any, Final

import orjson

from services.relay.alerts.contents import document, summary
from snavio.clock import Clock
from snavio.domain.directory import AlertChannel
from snavio.errors import SnavioError, StateError, Unavailable
from snavio.ports.alert_store import AlertMessage

STEP_SECONDS: Final = 10.0
TOTAL_SECONDS: Final = 30.0
CONNECTIONS: Final = 4


@dataclass(frozen=True, slots=True)
class SmtpServer:
    """Where mail is handed over; no host: nowhere."""

    host: str = ""
    port: int = 587
    security: str = "starttls"
    """`starttls`, `tls` or `none`."""
    user: str = ""
    password_file: str = ""
    sender: str = ""
    ca_file: str = ""
    step_s: float = STEP_SECONDS
    total_s: float = TOTAL_SECONDS


class SmtpNotConfigured(SnavioError):
    """There is no server to hand mail to: no retry will find one."""

    reason = "smtp-not-configured"


class AlertEmails:
    """Hands mail over on threads of its own, so that a hanging server holds up nothing else."""

    def __init__(self, server: SmtpServer, *, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="smtp")
        self._sockets: set[socket.socket] = set()

    async def send(self, channel: AlertChannel, message: AlertMessage) -> None:
        """Deliver it; Unavailable, with the reason, if the server did not say that it has it."""
        server = self._server
        if not server.host:
            raise SmtpNotConfigured("No SMTP server is configured: set [relay] smtp_host and smtp_from.")
        mail = _mail(server.sender, channel.address, message)
        attempt = _Attempt(server)
        loop = asyncio.get_running_loop()
        handing = loop.run_in_executor(self._threads, attempt.run, mail)
        try:
            async with asyncio.timeout(server.total_s):
                await asyncio.shield(handing)
        except TimeoutError:
            attempt.abort()
            handing.add_done_callback(_seen)
            raise Unavailable(
                f"{server.host} did not take the mail in time.", reason="smtp-timeout"
            ) from None

    async def stop(self) -> None:
        """Let go of the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Attempt:
    """One connection; `abort` closes it from another thread, which ends whatever it waits for."""

    def __init__(self, server: SmtpServer) -> None:
        self._server = server
        self._client: smtplib.SMTP | None = None
        self._aborted = False

    def run(self, mail: EmailMessage) -> None:
        server = self._server
        try:
            self._hand_over(mail)
        except smtplib.SMTPRecipientsRefused:
            raise Unavailable(f"{server.host} refuses the address.", reason="smtp-refused") from None
        except smtplib.SMTPResponseException as error:
            raise Unavailable(
                f"{server.host} answered {error.smtp_code}.", reason=f"smtp-{error.smtp_code}"
            ) from None
        except TimeoutError:
            raise Unavailable(f"{server.host} does not answer.", reason="smtp-timeout") from None
        except (smtplib.SMTPException, ssl.SSLError, OSError, ValueError) as error:
            raise Unavailable(f"{server.host} cannot be used: {error}.", reason="smtp-failed") from None
        finally:
            client = self._client
            if client is not None:
                client.close()

    def abort(self) -> None:
        self._aborted = True
        client: Any = self._client
        if client is not None and client.sock is not None:
            try:
                client.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return

    def _hand_over(self, mail: EmailMessage) -> None:
        server = self._server
        tls = ssl.create_default_context(cafile=server.ca_file or None)
        if server.security == "tls":
            client: smtplib.SMTP = smtplib.SMTP_SSL(
                server.host, server.port, timeout=server.step_s, context=tls
            )
        else:
            client = smtplib.SMTP(timeout=server.step_s)
        self._client = client
        if server.security != "tls":
            client.connect(server.host, server.port)
            if server.security == "starttls":
                client.starttls(context=tls)
        if self._aborted:
            raise TimeoutError
        if server.user:
            client.login(server.user, Path(server.password_file).read_text().strip())
        client.send_message(mail)
        # The server has said that it has the mail; how it says goodbye changes nothing.


def _mail(sender: str, recipient: str, message: AlertMessage) -> EmailMessage:
    from datetime import UTC, datetime

    mail = EmailMessage()
    # One line, whatever a reason has in it: no header ends by it.
    mail["Subject"] = " ".join(summary(message).split())
    mail["From"] = sender
    mail["To"] = recipient
    mail["Date"] = format_datetime(datetime.fromtimestamp(message.created_unix_ns / 1e9, tz=UTC))
    # The same at every attempt, so that a mailbox that had it already can tell.
    mail["Message-ID"] = f"<{message.alert_id}@{sender.rpartition('@')[2] or 'snavio'}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(orjson.dumps(document(message), option=orjson.OPT_INDENT_2).decode() + "\n")
    return mail


def _seen(handing: asyncio.Future[None]) -> None:
    if not handing.cancelled():
        handing.exception()  # Looked at, so that nobody misses it.


def require_password(server: SmtpServer) -> None:
    """StateError where a user is configured and its password cannot be read."""
    if server.host and not server.sender:
        raise StateError("[relay] smtp_from must be set with smtp_host.", reason="smtp-from")
    if server.user:
        try:
            Path(server.password_file).read_text()
        except OSError as error:
            raise StateError(
                f"[relay] smtp_password_file cannot be read: {error.strerror}.", reason="smtp-password"
            ) from None
