"""The description is of what is served, all of it and nothing else."""

import re
from typing import Any, cast

from starlette.routing import Route

from libs.errors.registry import REGISTRY
from services.gateway.app import PathEndpoint, router
from services.gateway.clients import AdmissionClient, LibraryClient
from services.gateway.health_routes import Readiness
from services.gateway.main import operations
from services.gateway.openapi import openapi_document
from services.gateway.operations import SERVED_ANYWHERE, Operation


def served() -> tuple[Operation, ...]:
    return operations(cast("AdmissionClient", None), cast("LibraryClient", None), Readiness())


def test_the_documented_routes_are_exactly_the_served_ones() -> None:
    document = openapi_document(served(), "1")
    documented = {(path, method.upper()) for path, methods in document["paths"].items() for method in methods}
    answered = {
        (route.path, method)
        for route in router(served()).routes
        if isinstance(route, Route) and isinstance(route.endpoint, PathEndpoint)
        for method in route.endpoint.operations
    }
    assert len(router(served()).routes) == len({path for path, _ in answered})
    assert documented == answered
    assert ("/api/v1/assets/uploads", "POST") in answered
    assert ("/api/v1/assets/uploads/{uploadId}/completion", "POST") in answered
    assert ("/api/v1/assets/{assetId}", "GET") in answered


def test_every_documented_code_is_registered_and_stands_under_its_own_status() -> None:
    for path, methods in openapi_document(served(), "1")["paths"].items():
        for method, operation in methods.items():
            for status, response in operation["responses"].items():
                for code in _codes(response):
                    assert str(REGISTRY[code].http_status) == status, (path, method, code)


def test_every_operation_documents_the_codes_it_declares_and_those_of_every_route() -> None:
    document = openapi_document(served(), "1")
    for operation in served():
        described = document["paths"][operation.path][operation.method.lower()]["responses"].values()
        codes = {code for response in described for code in _codes(response)}
        assert codes == {*operation.refusals, *SERVED_ANYWHERE}


def test_every_reference_of_the_description_leads_somewhere() -> None:
    document = openapi_document(served(), "1")
    references = set(_references(document))
    assert "#/components/schemas/UploadIntent" in references
    for reference in references:
        found: Any = document
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]


def test_every_path_parameter_is_declared() -> None:
    for operation in served():
        declared = {one.name for one in operation.parameters if one.where == "path"}
        assert declared == set(re.findall(r"{(\w+)}", operation.path))


def test_authenticated_operations_declare_the_organization_header_and_no_other_does() -> None:
    for operation in served():
        names = {one.name for one in operation.parameters}
        assert ("X-Organization-Id" in names) == operation.authenticated
        assert ("identity.unauthenticated" in operation.refusals) == operation.authenticated


def test_the_description_is_openapi_3_0_and_hides_the_stand_ins_of_absent_fields() -> None:
    document = openapi_document(served(), "1")
    assert document["openapi"] == "3.0.3"
    text = str(document)
    assert "'type': 'null'" not in text
    assert "'const'" not in text
    assert "'default'" not in text
    intent = document["components"]["schemas"]["UploadIntent"]
    assert intent["additionalProperties"] is False
    assert intent["required"] == ["mediaType", "byteSize", "accessClass"]


def _codes(response: dict[str, Any]) -> list[str]:
    schema = response.get("content", {}).get("application/json", {}).get("schema", {})
    parts = schema.get("allOf", [])
    return [
        code
        for part in parts
        if "properties" in part
        for code in part["properties"]["error"]["properties"]["code"]["enum"]
    ]


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [one for inner in value.values() for one in _references(inner)]
    if isinstance(value, list):
        return [one for inner in value for one in _references(inner)]
    return []
