"""The models that a service lists, as OpenAI's `/v1/models` has them."""

from __future__ import annotations

import json


def models_path(base: str) -> str:
    """Where the models are listed, below an address or its path.

    >>> models_path("http://here:8000"), models_path("http://here:8000/v1")
    ('/v1/models', '/models')
    """
    return "/models" if base.rstrip("/").endswith("/v1") else "/v1/models"


def first_listed(body: str | bytes) -> str | None:
    """The first model of an answer; None where it lists none, or is no such answer.

    >>> first_listed('{"data": [{"id": "chat"}]}'), first_listed('{"data": []}'), first_listed("<html>")
    ('chat', None, None)
    """
    try:
        found = json.loads(body)["data"][0]["id"]
    except (ValueError, LookupError, TypeError):
        return None
    return found if isinstance(found, str) else None
