"""JSON Schemas of requests (extra ``serve``)."""

from __future__ import annotations

import json
from graphlib import CycleError, TopologicalSorter
from typing import Any

from soft_reasoning.types import UserError

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
"""Keywords of a JSON Schema with schemas of the same value, not of its parts."""


def check_schema(schema: Any) -> str:
    """Return a JSON Schema as text.

    Raises:
        UserError: If it is none, or refers to what it does not hold.
    """
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    try:
        draft = validator_for(schema)
        draft.check_schema(schema)
        _check_references(schema, draft)
    except SchemaError as error:
        raise UserError(f"expected a valid JSON Schema, got an error: {error.message:.200}") from error
    except (AttributeError, TypeError, ValueError, RecursionError) as error:  # a "$schema" that is no text
        raise UserError(f"expected a valid JSON Schema, got one that cannot be read: {error}") from error
    return json.dumps(schema, ensure_ascii=False)


def _check_references(schema: Any, draft: Any) -> None:
    """Refuse references to what ``schema`` does not hold, and those that lead back to themselves."""
    from jsonschema_specifications import REGISTRY
    from referencing import Resource
    from referencing.jsonschema import DRAFT202012

    def part_of(content: Any) -> Any:
        return Resource.from_contents(content, default_specification=DRAFT202012)

    root = part_of(schema)
    parts, graph = [(root, REGISTRY.resolver_with_root(root))], dict[int, list[int]]()
    while parts:
        part, resolver = parts.pop()
        node = part.contents
        if id(node) in graph or not isinstance(node, dict):
            continue
        resolver = resolver.in_subresource(part)
        targets = [_target(resolver, node[key]) for key in _REFERENCES if key in node]
        for target in targets:
            if id(target.contents) not in graph:
                draft.check_schema(target.contents)
        in_place = [target.contents for target in targets]  # schemas of the same value
        for value in (node[key] for key in _IN_PLACE if key in node):
            in_place += value if isinstance(value, list) else [value]
        graph[id(node)] = [id(schema) for schema in in_place]
        parts += [(inner, resolver) for inner in part.subresources()]
        parts += [(part_of(target.contents), target.resolver) for target in targets]
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        raise UserError("expected a JSON Schema that ends, got a $ref that leads back to itself") from None


def _target(resolver: Any, reference: str) -> Any:
    """What a reference leads to; nothing is fetched."""
    from referencing.exceptions import Unresolvable

    try:
        return resolver.lookup(reference)
    except (Unresolvable, ValueError) as error:
        raise UserError(
            f"expected references to parts of the same JSON Schema, got {reference!r:.200}"
        ) from error
