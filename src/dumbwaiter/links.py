"""Links that need no login: what one opens, and until when, signed so that nobody can change it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime

from dumbwaiter.errors import MissingExtra


@dataclass(frozen=True, slots=True)
class Grant:
    """What a link opens: how a task stands with all its files, or one file of it."""

    task_id: str
    expires_at: datetime
    file: str | None = None


class Links:
    """Makes tokens and reads them again; whoever knows the secret can. Raises MissingExtra without `dumbwaiter[api]`."""

    def __init__(self, secret: str) -> None:
        try:
            from itsdangerous import URLSafeSerializer
        except ModuleNotFoundError as error:
            raise MissingExtra(str(error.name), "api") from None
        how = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
        self._serializer = URLSafeSerializer(secret, salt="dumbwaiter.link", signer_kwargs=how)

    def token(self, grant: Grant) -> str:
        """The grant as text that is safe in an address."""
        until = int(grant.expires_at.timestamp())
        return str(self._serializer.dumps([grant.task_id, until, grant.file]))

    def read(self, token: str) -> Grant | None:
        """What a token grants, whether or not its time is over; None if we never made it."""
        from itsdangerous import BadData

        try:
            task_id, until, file = self._serializer.loads(token)
        except BadData:
            return None
        return Grant(task_id, datetime.fromtimestamp(until, UTC), file)
