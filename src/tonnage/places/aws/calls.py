"""Calls of AWS services, with their failures in words of ours; shared by all that is Amazon's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from typing import Any, Final

from tonnage.errors import InputError, TonnageError
from tonnage.places.bucket.cloud import refused, unasked
from tonnage.places.bucket.s3 import ATTEMPTS, client_of, code_of
from tonnage.places.bucket.secrets import aws_parameter, secret_of, storing
from tonnage.places.contract import PlaceFinding
from tonnage.secret_references import SecretReference
from tonnage.values import dataclass

EXPIRED: Final = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})
DENIED: Final = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthFailure",
                           "UnrecognizedClientException", "InvalidClientTokenId"})  # fmt: skip


class AwsError(TonnageError):
    """What a service refused, with its own code."""

    def __init__(self, code: str, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.code = code


@dataclass(frozen=True, kw_only=True)
class AWSAccount:
    """One region of an account, as a place of a name says."""

    place: str
    region: str
    profile: str | None = None
    attempts: int = ATTEMPTS

    def client(self, service: str) -> Any:
        """One for each service: making one costs more than a call."""
        if service not in self._clients:
            self._clients[service] = client_of(
                service, region=self.region, profile=self.profile, attempts=self.attempts
            )
        return self._clients[service]

    @cached_property
    def _clients(self) -> dict[str, Any]:
        return {}

    def call(self, service: str, operation: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The answer. AwsError with the service's code; TonnageError where it does not answer after all tries."""
        self.client(service)  # MissingExtra, or a profile that is not there
        botocore, exceptions = import_module("botocore"), import_module("botocore.exceptions")
        try:
            answer: dict[str, Any] = getattr(self.client(service), botocore.xform_name(operation))(**(body or {}))
        except exceptions.ClientError as error:
            raise self._worded(service, operation, error) from error
        except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError,
                exceptions.TokenRetrievalError, exceptions.SSOError) as error:  # fmt: skip
            raise InputError(f"AWS: {error}", hint=f"{self._login}, or places.{self.place}.profile") from error
        except exceptions.ParamValidationError as error:
            raise InputError(f"{service} {operation}: {error}", hint=f"correct places.{self.place}") from error
        except (exceptions.BotoCoreError, OSError) as error:
            raise TonnageError(
                f"{service} in {self.region} does not answer: {error}", hint="the same command goes on"
            ) from error
        return answer

    @property
    def _login(self) -> str:
        return "`aws sso login" + (f" --profile {self.profile}`" if self.profile else "`")

    def _worded(self, service: str, operation: str, error: Any) -> AwsError:
        code, said = code_of(error), str(error.response.get("Error", {}).get("Message", ""))
        if code in EXPIRED:
            return AwsError(code, f"AWS: the credentials have expired: {said}", hint=self._login)
        if code in DENIED:
            hint = f"an administrator: allow {service}:{operation} to `aws sts get-caller-identity`"
            return AwsError(code, f"{service} {operation} is refused: {said}", hint=hint)
        return AwsError(code, f"{service} {operation}: {code}: {said}", hint=f"`tonnage places check {self.place}`")

    # questions that several services share

    def identity(self) -> Iterator[PlaceFinding]:
        """Whether there are credentials that are taken."""
        try:
            self.call("sts", "GetCallerIdentity")
        except TonnageError as error:
            yield refused(error.message, error.hint or "")

    def role(self, arn: str, service: str) -> Iterator[PlaceFinding]:
        """Whether a role is there, and lets this service take it."""
        name = arn.rpartition("/")[2]
        try:
            found = self.call("iam", "GetRole", {"RoleName": name})["Role"]
        except AwsError as error:
            if error.code == "NoSuchEntity":
                allow = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
                trust = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
                hint = f"`aws iam create-role --role-name {name} --assume-role-policy-document '{trust}'`"
                yield refused(f"there is no role {name}", hint)
            else:
                yield unasked(f"the role {name}", error)
            return
        allowed = found.get("AssumeRolePolicyDocument") or {}
        if service not in str(allowed):
            hint = f"`aws iam update-assume-role-policy --role-name {name}` with the principal {service}"
            yield refused(f"the role {name} does not let {service} take it", hint)

    def quota(self, service: str, wanted: float, *, named: str) -> Iterator[PlaceFinding]:
        """Whether the account's quota of a name is enough; a name that is not listed is reported."""
        try:
            quotas = list(self._quotas(service))
        except AwsError as error:
            yield unasked(f"the quota «{named}»", error)
            return
        found = next((one for one in quotas if one["QuotaName"] == named), None)
        if found is None:
            yield PlaceFinding(kind="unchecked", message=f"no quota is named «{named}» in {self.region}",
                               hint=f"`aws service-quotas list-service-quotas --service-code {service}`")  # fmt: skip
        elif found["Value"] < wanted:
            ask = f"--service-code {service} --quota-code {found['QuotaCode']} --desired-value {wanted:g}"
            ask = f"aws service-quotas request-service-quota-increase {ask} --region {self.region}"
            yield refused(f"the quota «{named}» is {found['Value']:g}, {wanted:g} is needed", f"`{ask}`")

    def _quotas(self, service: str) -> Iterator[dict[str, Any]]:
        token: str | None = None
        while True:
            more = {"NextToken": token} if token else {}
            answer = self.call("service-quotas", "ListServiceQuotas", {"ServiceCode": service, **more})
            yield from answer["Quotas"]
            token = answer.get("NextToken")
            if token is None:
                return

    def secret(self, reference: str | None) -> Iterator[PlaceFinding]:
        """Whether the secret of the place is there. Its value is not asked for."""
        asked = secret_of(reference)
        if asked is None:
            return
        if asked.scheme == "aws-ssm":
            yield from self._parameter(asked)
            return
        try:
            self.call("secretsmanager", "DescribeSecret", {"SecretId": asked.name})
        except AwsError as error:
            if error.code == "ResourceNotFoundException":
                yield refused(f"there is no secret {asked.name}", f"`{storing(asked)}`")
            else:
                yield unasked(f"the secret {asked.name}", error)

    def _parameter(self, asked: SecretReference) -> Iterator[PlaceFinding]:
        names = aws_parameter(asked)
        name = names[-1]
        named = {"ParameterFilters": [{"Key": "Name", "Option": "Equals", "Values": list(names)}]}
        try:
            found = self.call("ssm", "DescribeParameters", named)["Parameters"]
        except AwsError as error:
            yield unasked(f"the parameter {name}", error)
            return
        if not found:
            yield refused(f"there is no parameter {name}", f"`{storing(asked)}`")

    def image(self, image: str) -> Iterator[PlaceFinding]:
        """Whether an image of Amazon's registry is there; of other registries only the machine learns."""
        host, _, rest = image.partition("/")
        if ".dkr.ecr." not in host:
            yield PlaceFinding(kind="unchecked", message=f"the image of {host} is not looked for",
                               hint=f"`skopeo inspect docker://{image}`")  # fmt: skip
            return
        name, _, digest = rest.partition("@")
        asked = {"repositoryName": name, "registryId": host.partition(".")[0], "imageIds": [{"imageDigest": digest}]}
        region = host.split(".")[3]
        there = self if region == self.region else AWSAccount(place=self.place, region=region, profile=self.profile)
        try:
            there.call("ecr", "DescribeImages", asked)
        except AwsError as error:
            if error.code in {"RepositoryNotFoundException", "ImageNotFoundException"}:
                yield refused(f"the image {image} is not in its registry",
                              f"`aws ecr describe-images --repository-name {name} --region {region}`")  # fmt: skip
            else:
                yield unasked(f"the image {image}", error)


@dataclass(frozen=True, kw_only=True)
class AWSJobs:
    """A place of Amazon's: its name, what is written of it, and its account."""

    name: str
    place: Any  # of the kind: AWSTerms
    attempts: int = ATTEMPTS  # of each call

    @cached_property
    def account(self) -> AWSAccount:
        """Calls are tried again where that may help."""
        terms = self.place
        return AWSAccount(place=self.name, region=terms.region, profile=terms.profile, attempts=self.attempts)

    @cached_property
    def once(self) -> AWSAccount:
        """For what must not be sent twice."""
        return replace(self.account, attempts=1)
