"""What goes wrong with a request, each with its HTTP status and a word that programs can test."""

from __future__ import annotations

from typing import ClassVar


class Fault(Exception):
    """The request is not answered; the server goes on."""

    status: ClassVar[int] = 500
    kind: ClassVar[str] = "internal"

    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        return ()


class BadRequest(Fault):
    """Not what the endpoint takes: a wrong type, an empty batch, invalid JSON."""

    status = 400
    kind = "invalid_request"


class MissingColumn(BadRequest):
    """A column that the model reads is not there."""

    kind = "missing_column"


class UnknownColumn(BadRequest):
    """A column that the model does not read."""

    kind = "unknown_column"


class WrongType(BadRequest):
    """A value or tensor of another type than its column has."""

    kind = "wrong_type"


class WrongShape(BadRequest):
    """A tensor or row of another shape than the model takes, or than its data has."""

    kind = "wrong_shape"


class MissingValue(BadRequest):
    """Nothing (null, NaN) in a column where the model takes no gap."""

    kind = "missing_value"


class PictureFormat(BadRequest):
    """No picture of a format that is read."""

    kind = "image_format"


class BadPicture(BadRequest):
    """A picture that cannot be decoded: cut short, corrupt, no base64."""

    kind = "invalid_image"


class Unauthorized(Fault):
    """The key is missing or wrong."""

    status = 401
    kind = "unauthorized"


class Forbidden(Fault):
    """The server was not started so that this may be done."""

    status = 403
    kind = "forbidden"


class NotFound(Fault):
    """No such path, model or version."""

    status = 404
    kind = "not_found"


class WrongTask(Fault):
    """The model that is served has another task."""

    status = 424
    kind = "model_type"


class TooLarge(Fault):
    """The body, the batch or a text is larger than the server takes."""

    status = 413
    kind = "too_large"


class Overloaded(Fault):
    """As much waits as may; `position` is the place in the queue that the request would have had."""

    status = 429
    kind = "overloaded"

    def __init__(self, message: str, *, retry_after_s: float, position: int) -> None:
        super().__init__(message)
        self.retry_after_s, self.position = retry_after_s, position

    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        seconds = max(1, round(self.retry_after_s))
        return ((b"retry-after", str(seconds).encode()), (b"x-queue-position", str(self.position).encode()))


class Late(Fault):
    """The request's deadline passed before its turn came; nothing was computed."""

    status = 504
    kind = "deadline_exceeded"


class ModelFailed(Fault):
    """The model failed on this batch."""

    kind = "model_error"


class Draining(Fault):
    """The server is ending: it finishes what it took and takes nothing new."""

    status = 503
    kind = "draining"
