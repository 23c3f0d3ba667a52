"""The description of the API as a page: every endpoint, its parameters and its answer.

It is made here from the OpenAPI description, without a script, since the usual pages load theirs
from elsewhere.
"""

from collections.abc import Mapping
from html import escape
from typing import Any

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1c1c1c; background: #fff; }
h2 { margin-top: 2.5rem; font-size: 1.1rem; }
code, h2 { font-family: ui-monospace, monospace; }
h2 span { display: inline-block; min-width: 4.5rem; color: #0b5394; }
table { border-collapse: collapse; margin: 0.5rem 0; }
td, th { text-align: left; vertical-align: top; padding: 0.15rem 1rem 0.15rem 0; }
@media (prefers-color-scheme: dark) {
  body { color: #e6e6e6; background: #16181c; }
  h2 span, a { color: #7db4f0; }
}
"""


def api_page(openapi: Mapping[str, Any]) -> str:
    """Return the page of an OpenAPI description.

    >>> page = api_page({"info": {"title": "Earmark", "version": "1"}, "paths": {
    ...     "/health": {"get": {"description": "Say that it is there.", "responses": {}}}}})
    >>> "<span>GET</span> /health" in page
    True
    """
    info = openapi["info"]
    title = f"{escape(info['title'])} {escape(info['version'])}: API"
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        '<meta name="viewport" content="width=device-width">',
        '<link rel="stylesheet" href="/docs/style.css"></head><body><main>',
        f"<h1>{title}</h1>",
        '<p>The same for programs: <a href="/openapi.json">openapi.json</a>. Times are in seconds. '
        "An error has the field <code>detail</code>, one sentence.</p>",
    ]
    for path, methods in openapi["paths"].items():
        for method, about in methods.items():
            parts.append(_endpoint(path, method, about, openapi))
    return "".join([*parts, "</main></body></html>"])


def _endpoint(path: str, method: str, about: Mapping[str, Any], openapi: Mapping[str, Any]) -> str:
    rows = []
    for parameter in about.get("parameters", []):
        what = parameter.get("description") or _kind(parameter.get("schema", {}), openapi)
        rows.append((parameter["name"], parameter["in"], what))
    for kind, content in about.get("requestBody", {}).get("content", {}).items():
        rows.append(("body", kind, _kind(content.get("schema", {}), openapi)))
    for status, answer in about.get("responses", {}).items():
        if status.startswith("2"):
            for kind, content in answer.get("content", {}).items():
                rows.append((f"answer {status}", kind, _kind(content.get("schema", {}), openapi)))
    cells = "".join(
        f"<tr><th><code>{escape(name)}</code></th><td>{escape(place)}</td><td>{escape(what)}</td>"
        "</tr>"
        for name, place, what in rows
    )
    heading = f"<h2><span>{method.upper()}</span> {escape(path)}</h2>"
    return f"{heading}<p>{escape(about.get('description', ''))}</p><table>{cells}</table>"


def _kind(schema: Mapping[str, Any], openapi: Mapping[str, Any]) -> str:
    """Return a schema in a few words: the fields of an object, the items of a list."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        schema = openapi["components"]["schemas"][name]
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(each, openapi) for each in schema["anyOf"]))
    if "properties" in schema:
        return "{" + ", ".join(schema["properties"]) + "}"
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}), openapi)}"
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    return str(schema.get("format") or schema.get("const") or schema.get("type") or "any")
