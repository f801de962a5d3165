"""`python -m mustit_pipeline.api` prints the OpenAPI document, which is kept as docs/openapi.json."""

import json

from mustit_pipeline.api.app import create_routes


def openapi_text() -> str:
    """The OpenAPI document in one form, so that a change of the API is seen in review."""
    return json.dumps(create_routes().openapi(), ensure_ascii=False, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    print(openapi_text(), end="")
