"""EC2's protocol from the service's side: requests are forms, answers are XML, both by botocore's model."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from importlib import import_module
from typing import Any
from xml.sax.saxutils import escape

Document = dict[str, Any]


@cache
def operation_model(service: str, operation: str) -> Any:
    """Botocore's model of one operation."""
    return import_module("botocore.session").get_session().get_service_model(service).operation_model(operation)


def read_form(form: Mapping[str, str], shape: Any, prefix: str = "") -> Any:
    """What a form says of a shape; None where it says nothing. Texts become the model's numbers and booleans."""
    if shape.type_name == "structure":
        found = {
            name: value
            for name, member in shape.members.items()
            if (value := read_form(form, member, _joined(prefix, _asked_as(name, member)))) is not None
        }
        return found or None
    if shape.type_name == "list":
        values: list[Any] = []
        while (value := read_form(form, shape.member, f"{prefix}.{len(values) + 1}")) is not None:
            values.append(value)
        return values or None
    if prefix not in form:
        return None
    text = form[prefix]
    if shape.type_name == "boolean":
        return text == "true"
    return int(text) if shape.type_name in {"integer", "long"} else text


def write_answer(operation: str, value: Document, shape: Any) -> bytes:
    """The XML of an answer."""
    inside = "".join(_element(name, value[name], member) for name, member in shape.members.items() if name in value)
    space = "http://ec2.amazonaws.com/doc/2016-11-15/"
    return f'<{operation}Response xmlns="{space}">{inside}</{operation}Response>'.encode()


def write_error(code: str, message: str) -> bytes:
    """The XML of a refusal."""
    error = f"<Error><Code>{escape(code)}</Code><Message>{escape(message)}</Message></Error>"
    return f"<Response><Errors>{error}</Errors><RequestID>0</RequestID></Response>".encode()


def _element(name: str, value: Any, shape: Any) -> str:
    tag = shape.serialization.get("name", name)
    if shape.type_name == "structure":
        text = "".join(_element(key, value[key], one) for key, one in shape.members.items() if key in value)
    elif shape.type_name == "list":
        text = "".join(_element("item", one, shape.member) for one in value)
    elif isinstance(value, bool):
        text = str(value).lower()
    else:
        text = escape(value.isoformat() if isinstance(value, datetime) else str(value))
    return f"<{tag}>{text}</{tag}>"


def _asked_as(name: str, shape: Any) -> str:
    given = shape.serialization
    if "queryName" in given:
        return str(given["queryName"])
    asked = str(given.get("name", name))
    return asked[0].upper() + asked[1:]


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
