"""Writes the OpenAPI document from the operations that are served."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from libs.errors.registry import REGISTRY
from services.gateway.headers import SESSION_COOKIE
from services.gateway.operations import SERVED_ANYWHERE, Operation, Success

# 3.0.3: what the bundled Swagger UI renders.
_VERSION: Final = "3.0.3"
_REQUEST_ID: Final = {
    "description": "Names this request in the logs: yours when it was acceptable, else a new one.",
    "schema": {"type": "string"},
}
_RETRY_AFTER: Final = {"description": "Seconds to wait before the next try.", "schema": {"type": "integer"}}


def openapi_document(operations: Sequence[Operation], version: str) -> dict[str, Any]:
    """Return the OpenAPI 3.0.3 document of the operations, codes and messages taken from the registry of errors.

    Raises:
        KeyError: An operation declares a code that the registry does not have.
    """
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = []
    for operation in operations:
        if operation.body is not None:
            models.append((operation.body, "validation"))
        models.extend((one.content, "serialization") for one in operation.successes if _is_model(one.content))  # type: ignore[misc]
    references, definitions = models_json_schema(
        list(dict.fromkeys(models)),
        ref_template="#/components/schemas/{model}",
        schema_generator=_Schemas,
    )
    names: dict[Any, JsonSchemaValue] = {model: reference for (model, _), reference in references.items()}
    paths: dict[str, dict[str, Any]] = defaultdict(dict)
    for operation in operations:
        paths[operation.path][operation.method.lower()] = _operation(operation, names)
    return {
        "openapi": _VERSION,
        "info": {
            "title": "Ninaku Assets",
            "version": version,
            "description": (
                "Photos from intent to delivery. Request an upload, post the file to the storage with the form you "
                "get, complete the upload, and read the asset until it is ready."
            ),
        },
        "paths": dict(paths),
        "components": {
            "schemas": {**definitions.get("$defs", {}), "Error": _ERROR_SCHEMA},
            "securitySchemes": {
                "session": {"type": "http", "scheme": "bearer", "description": "A session token."},
                "cookie": {"type": "apiKey", "in": "cookie", "name": SESSION_COOKIE},
            },
        },
    }


def _operation(operation: Operation, names: dict[Any, JsonSchemaValue]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": operation.description,
        "tags": [operation.tag],
        "parameters": [
            {
                "name": one.name,
                "in": one.where,
                "required": one.required,
                "description": one.description,
                "schema": one.schema,
            }
            for one in operation.parameters
        ],
        "responses": _responses(operation, names),
    }
    if operation.body is not None:
        document["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": names[operation.body]}},
        }
    if operation.authenticated:
        document["security"] = [{"session": []}, {"cookie": []}]
    return document


def _responses(operation: Operation, names: dict[Any, JsonSchemaValue]) -> dict[str, Any]:
    responses: dict[str, Any] = {str(one.status): _success(one, names) for one in operation.successes}
    codes: dict[int, list[str]] = defaultdict(list)
    for code in (*operation.refusals, *SERVED_ANYWHERE):
        codes[REGISTRY[code].http_status].append(code)
    for status, of_status in sorted(codes.items()):
        headers = {"X-Request-Id": _REQUEST_ID}
        if status in (429, 503):
            headers["Retry-After"] = _RETRY_AFTER
        responses[str(status)] = {
            "description": "\n".join(f"- `{code}`: {REGISTRY[code].message}" for code in of_status),
            "headers": headers,
            "content": {
                "application/json": {
                    "schema": {
                        "allOf": [
                            {"$ref": "#/components/schemas/Error"},
                            {"properties": {"error": {"properties": {"code": {"enum": of_status}}}}},
                        ]
                    }
                }
            },
        }
    return responses


def _success(success: Success, names: dict[Any, JsonSchemaValue]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "description": success.description,
        "headers": {"X-Request-Id": _REQUEST_ID}
        | {name: {"description": meaning, "schema": {"type": "string"}} for name, meaning in success.headers},
    }
    if isinstance(success.content, str):
        document["content"] = {success.content: {"schema": {"type": "string"}}}
    elif success.content is not None:
        document["content"] = {"application/json": {"schema": names[success.content]}}
    return document


def _is_model(content: object) -> bool:
    return isinstance(content, type)


class _Schemas(GenerateJsonSchema):
    """Pydantic writes JSON Schema 2020-12; these are the places where OpenAPI 3.0 spells it otherwise."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        inner = self.generate_inner(schema["schema"])
        # A reference may not have siblings in 3.0.
        return {"allOf": [inner], "nullable": True} if "$ref" in inner else {**inner, "nullable": True}

    def literal_schema(self, schema: core_schema.LiteralSchema) -> JsonSchemaValue:
        document = super().literal_schema(schema)
        if "const" in document:
            document["enum"] = [document.pop("const")]
        return document

    def field_title_should_be_set(self, schema: object) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        # An absent optional field is absent: its stand-in inside the program is nobody else's business.
        return self.generate_inner(schema["schema"])


_ERROR_SCHEMA: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "meta"],
            "properties": {
                "code": {"type": "string", "description": "For machines; stable.", "example": "assets.not_found"},
                "message": {"type": "string", "description": "One plain sentence: what was refused."},
                "meta": {
                    "type": "object",
                    "required": ["remedy"],
                    "properties": {
                        "remedy": {"type": "string", "description": "What the person can do."},
                        "fields": {
                            "type": "array",
                            "description": "What is wrong with an invalid request.",
                            "items": {
                                "type": "object",
                                "required": ["field", "message"],
                                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
                            },
                        },
                    },
                    "additionalProperties": True,
                },
            },
        }
    },
}
