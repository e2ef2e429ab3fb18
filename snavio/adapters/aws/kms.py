"""Data keys by AWS KMS: the key store's sealing key is never on disk in the clear.

Never sends the key store or any secret of it to AWS, and never repeats the text of an AWS error, which names accounts
and roles; its own text says where to look.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aioboto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
)

from snavio.errors import StateError, Unavailable
from snavio.ports.key_wrapping import DataKey, KmsKey

KEY_BYTES: Final = 32
_CONFIG: Final = {"connect_timeout": 3, "read_timeout": 5, "retries": {"max_attempts": 2}}
_AWAY: Final = frozenset(
    {
        "DependencyTimeoutException",
        "InternalFailure",
        "KMSInternalException",
        "LimitExceededException",
        "RequestLimitExceeded",
        "ServiceUnavailable",
        "ThrottlingException",
    }
)
_REFUSALS: Final[Mapping[str, str]] = {
    "AccessDeniedException": "these credentials may not use the key; they need GenerateDataKey and Decrypt on it",
    "DisabledException": "the key is disabled",
    "ExpiredTokenException": "the credentials have expired",
    "IncompleteSignature": "the credentials are not valid",
    "IncorrectKeyException": "the sealing key was wrapped with another key than the one configured",
    "InvalidCiphertextException": "the wrapped sealing key is damaged, or was made for another installation or key",
    "InvalidSignatureException": "the credentials are not valid",
    "KMSInvalidStateException": "the key cannot be used in its state; it may be pending deletion",
    "NotFoundException": "there is no such key in this region and account",
    "UnrecognizedClientException": "the credentials are not valid",
}


class KmsKeyWrapping:
    """A `KeyWrapping`."""

    def __init__(self, where: KmsKey) -> None:
        self._where = where
        # AWS compares it when unwrapping and writes it to its audit log; it is no secret.
        self._context = {"snavio:installation": where.installation, "snavio:purpose": "key-store"}

    async def fresh(self) -> DataKey:
        async with self._client() as kms:
            answer = await kms.generate_data_key(
                KeyId=self._where.key, NumberOfBytes=KEY_BYTES, EncryptionContext=self._context
            )
        return DataKey(bytes(answer["Plaintext"]), bytes(answer["CiphertextBlob"]))

    async def unwrap(self, wrapped: bytes) -> bytes:
        async with self._client() as kms:
            # With the key's name: a blob that an attacker wrapped with a key of his own must not be unwrapped.
            answer = await kms.decrypt(
                CiphertextBlob=wrapped, KeyId=self._where.key, EncryptionContext=self._context
            )
        return bytes(answer["Plaintext"])

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Any]:
        try:
            session = aioboto3.Session(region_name=self._where.region or None)
            async with session.client(
                "kms", endpoint_url=self._where.endpoint or None, config=Config(**_CONFIG)
            ) as client:
                yield client
        except ClientError as error:
            raise self._translated(str(error.response.get("Error", {}).get("Code", ""))) from None
        except (NoCredentialsError, PartialCredentialsError):
            raise self._refused("there are no AWS credentials in the environment") from None
        except (NoRegionError, ValueError):
            raise self._refused("region or endpoint are missing or no valid ones") from None
        except BotoCoreError as error:
            raise self._away(type(error).__name__) from None

    def _translated(self, code: str) -> StateError | Unavailable:
        if code in _REFUSALS:
            return self._refused(_REFUSALS[code])
        if code in _AWAY:
            return self._away(code)
        return self._refused(f"it answered {code or 'an unknown error'}")

    def _refused(self, why: str) -> StateError:
        return StateError(
            f"AWS KMS does not give the sealing key ({self._where.key}): {why}.", reason="kms-refused"
        )

    def _away(self, what: str) -> Unavailable:
        return Unavailable(
            f"AWS KMS cannot be reached for the sealing key ({self._where.key}): {what}.",
            reason="kms-unavailable",
        )
