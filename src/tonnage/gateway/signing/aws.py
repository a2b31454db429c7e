"""AWS Signature Version 4, by botocore: credentials of the environment, a profile, or the machine's role."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from typing import Any

from tonnage.errors import InputError, MissingExtra
from tonnage.gateway.signing.sign_in import SignIn
from tonnage.gateway.signing.tokens import SignInError
from tonnage.http.connection import Headers

SIGNED = ("Authorization", "X-Amz-Date", "X-Amz-Security-Token")


class AwsSigner:
    """botocore renews credentials that expire, a quarter of an hour ahead."""

    def __init__(self, credentials: Any, region: str, service: str) -> None:
        self._credentials, self._region, self._service = credentials, region, service
        self._auth = import_module("botocore.auth")
        self._request = import_module("botocore.awsrequest").AWSRequest
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sign-in")
        self._renewing: Future[None] | None = None

    def preparing(self, url: str, now_s: float) -> Future[None] | None:  # noqa: ARG002
        """The renewal of credentials that expire, one for all that wait; None where they hold or never expire."""
        needed = getattr(self._credentials, "refresh_needed", None)
        if needed is None or not needed():
            return None
        if self._renewing is None or self._renewing.done():
            self._renewing = self._thread.submit(self._renewed)
        return self._renewing

    def renew(self, url: str, now_s: float) -> None:
        """Begin it, aside."""
        self.preparing(url, now_s)

    def _renewed(self) -> None:
        try:
            self._credentials.get_frozen_credentials()
        except import_module("botocore.exceptions").BotoCoreError as error:
            raise SignInError(
                f"AWS credentials are not renewed: {error}", hint="aws sts get-caller-identity"
            ) from error

    def headers(self, method: str, url: str, body: bytes, now_s: float) -> Headers:  # noqa: ARG002
        """The signature is of the clock's time: AWS refuses another. SignInError where credentials are not renewed."""
        try:
            request = self._request(method=method, url=url, data=body)
            frozen = self._credentials.get_frozen_credentials()
            self._auth.SigV4Auth(frozen, self._service, self._region).add_auth(request)
        except import_module("botocore.exceptions").BotoCoreError as error:
            raise SignInError(
                f"AWS credentials are not renewed: {error}", hint="aws sts get-caller-identity"
            ) from error
        made = request.headers
        return [(name.lower().encode(), made[name].encode()) for name in SIGNED if name in made]


def aws_signer(sign_in: SignIn) -> AwsSigner:
    """Raises MissingExtra without botocore, InputError without credentials or a region."""
    try:
        session_module = import_module("botocore.session")
    except ImportError as error:
        raise MissingExtra("signing in to AWS", "fetch") from error
    try:
        session = session_module.Session(profile=sign_in.profile)
        credentials = session.get_credentials()
    except import_module("botocore.exceptions").BotoCoreError as error:
        raise InputError(f"AWS: {error}", hint="aws configure list-profiles") from error
    if credentials is None:
        raise InputError("there are no AWS credentials", hint="aws configure, AWS_PROFILE or a role of the machine")
    region = sign_in.region or session.get_config_variable("region")
    if not region:
        raise InputError("the region of AWS is not stated", hint="`region:` in sign_in, or AWS_REGION")
    return AwsSigner(credentials, region, sign_in.service or "bedrock")
