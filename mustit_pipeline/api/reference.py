"""The reference page: the OpenAPI document as HTML, with everything in it escaped."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Field:
    """One parameter or one field of a body."""

    name: str
    kind: str
    place: str
    required: bool
    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """One answer of a route."""

    status: str
    text: str
    fields: list[Field]
    example: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One route: what it takes and what it answers."""

    id: str
    method: str
    path: str
    tag: str
    text: str
    needs: str
    parameters: list[Field]
    body: list[Field]
    body_example: str
    outcomes: list[Outcome]


def render(document: Schema) -> str:
    """The page of a document."""
    found = list(operations(document))
    tags = list(dict.fromkeys(one.tag for one in found))
    groups = {tag: [one for one in found if one.tag == tag] for tag in tags}
    names: Schema = document.get("components", {}).get("schemas", {})
    problem: Schema = names.get("Problem", {})
    return _template().render(
        info=document["info"],
        groups=groups,
        problem=_fields(problem, names, "answer"),
        problem_example=_shown(problem, names),
    )


@lru_cache(maxsize=1)
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("mustit_pipeline.api", "pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("docs.html")


def operations(document: Schema) -> Iterator[Operation]:
    """Every route of a document."""
    names: Schema = document.get("components", {}).get("schemas", {})
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            body: Schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            yield Operation(
                id=operation["operationId"],
                method=method.upper(),
                path=path,
                tag=(operation.get("tags") or ["other"])[0],
                text=operation.get("description") or operation.get("summary", ""),
                needs=", ".join(name for choice in operation.get("security", []) for name in choice),
                parameters=[_parameter(one, names) for one in operation.get("parameters", [])],
                body=_fields(body.get("schema", {}), names, "body"),
                body_example=_shown(body.get("schema", {}), names),
                outcomes=[_outcome(status, one, names) for status, one in operation["responses"].items()],
            )


def _parameter(parameter: Schema, names: Schema) -> Field:
    return Field(
        name=parameter["name"],
        kind=_kind(parameter["schema"], names),
        place=parameter["in"],
        required=parameter.get("required", False),
        text=parameter.get("description", ""),
    )


def _outcome(status: str, response: Schema, names: Schema) -> Outcome:
    schema: Schema = response.get("content", {}).get("application/json", {}).get("schema", {})
    return Outcome(
        status=status,
        text=response.get("description", ""),
        fields=_fields(schema, names, "answer"),
        example=_shown(schema, names),
    )


def _fields(schema: Schema, names: Schema, place: str) -> list[Field]:
    found = _resolved(schema, names)
    required: list[str] = found.get("required", [])
    return [
        Field(name, _kind(one, names), place, name in required, one.get("description", ""))
        for name, one in found.get("properties", {}).items()
    ]


def _resolved(schema: Schema, names: Schema) -> Schema:
    reference: str = schema.get("$ref", "")
    return names[reference.rpartition("/")[2]] if reference else schema


def _kind(schema: Schema, names: Schema) -> str:
    """What a value may be, in a few words."""
    if "anyOf" in schema:
        return " or ".join(_kind(one, names) for one in schema["anyOf"])
    if "$ref" in schema:
        found = _resolved(schema, names)
        return _kind(found, names) if "enum" in found else schema["$ref"].rpartition("/")[2]
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}), names)}"
    limits = [f"{word} {schema[key]}" for key, word in _LIMITS.items() if key in schema]
    return ", ".join([schema.get("format") or schema.get("type", "any"), *limits])


_LIMITS = {
    "minimum": "at least",
    "maximum": "at most",
    "minLength": "characters at least",
    "maxLength": "characters at most",
}


_PLAIN: Mapping[str, Any] = {"string": "…", "integer": 0, "number": 0, "boolean": True, "object": {}}


def _shown(schema: Schema, names: Schema) -> str:
    """An example as JSON; nothing where there is no body."""
    if not schema:
        return ""
    return json.dumps(_example(schema, names), ensure_ascii=False, indent=2)


def _example(schema: Schema, names: Schema) -> Any:
    """A value that a schema allows: its own example, or one made of its parts."""
    found = _resolved(schema, names)
    if "examples" in found:
        return found["examples"][0]
    if "default" in found:
        return found["default"]
    if "anyOf" in found:
        return _example(found["anyOf"][0], names)
    if "properties" in found:
        return {name: _example(one, names) for name, one in found["properties"].items()}
    if "enum" in found or "const" in found:
        return found.get("const", found.get("enum", [None])[0])
    if found.get("type") == "array":
        return [_example(found.get("items", {}), names)]
    return _PLAIN.get(found.get("type", ""))
