"""Which models of a token price table are the model that someone names."""

from __future__ import annotations

import re
from collections.abc import Iterable

_REVISION = re.compile(r"(-v?\d+)?:\d+$")
_CHAT = re.compile(r"-(instruct|chat|it)$")
_REACH = re.compile(r"^(global|regional|us|eu|apac)\.")
_MAKER = re.compile(r"^(amazon|anthropic|ai21|cohere|deepseek|meta|mistral|nvidia|openai|qwen)\.")


def plain_model_name(name: str) -> str:
    """A model's name without maker, reach, revision, chat suffix and punctuation: what makes two spellings one model.

    Version and size stay: `llama-3.1-8b` is neither `llama-3-8b` nor `llama-3.1-70b`.

    >>> plain_model_name("meta.llama3-1-8b-instruct-v1:0"), plain_model_name("meta-llama/Llama-3.1-8B")
    ('llama318b', 'llama318b')
    >>> plain_model_name("Llama 3.1 8B"), plain_model_name("llama-3-8b")
    ('llama318b', 'llama38b')
    """
    return re.sub(r"[^a-z0-9]", "", _CHAT.sub("", spoken_model_name(name)))


def spoken_model_name(name: str) -> str:
    """A model's name as one says it, without maker, reach and revision: one name for one model in one picture.

    >>> spoken_model_name("amazon.nova-micro-v1:0"), spoken_model_name("nova-micro")
    ('nova-micro', 'nova-micro')
    """
    text = name.strip().casefold().rsplit("/", 1)[-1]
    text = _MAKER.sub("", _REACH.sub("", text))
    return re.sub(r"-v\d+$", "", _REVISION.sub("", text))


def has_reach(name: str) -> bool:
    """Whether a name is an inference profile's (`global.`, `us.`) rather than the model's own.

    >>> has_reach("us.amazon.nova-lite-v1:0"), has_reach("amazon.nova-lite-v1:0")
    (True, False)
    """
    return _REACH.match(name.casefold()) is not None


def find_token_models(name: str, priced: Iterable[str]) -> tuple[str, ...]:
    """The priced models that `name` means: the one spelled so, else all that are the same model under other spellings.

    Nothing else is taken for it: no other size, version or maker's model.
    """
    models = tuple(priced)
    if name in models:
        return (name,)
    wanted = plain_model_name(name)
    return tuple(model for model in models if wanted and plain_model_name(model) == wanted)
