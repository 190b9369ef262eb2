"""Keywords that depend on whether a value is valid under a schema, said by `allOf` and `anyOf`."""

from typing import Any

from local_worker.json_schemas.disjointness import Disjointness
from local_worker.json_schemas.negation import Inexpressible, Opposites, all_of, any_of, lacks

MOST_BRANCHES = 30  # of a `oneOf`, which are compared with each other


def unconditional(schema: dict[str, Any], opposites: Opposites) -> dict[str, Any]:
    """Return `schema` without `not`, `if` and keywords of dependencies, as far as others say the same."""
    rest, added = dict(schema), list[Any]()
    for keys, parts in (
        (("not",), _not),
        (("if", "then", "else"), _if),
        (("dependentRequired",), _dependent),
        (("dependentSchemas",), _dependent),
        (("dependencies",), _dependent),
    ):
        if keys[0] in rest:
            try:
                added += parts(rest, keys[0], opposites)
            except Inexpressible:
                continue
            rest = {key: value for key, value in rest.items() if key not in keys}
    added = [each for each in added if each is not True]
    if not added:
        return rest
    return {**rest, "allOf": [*rest.get("allOf", []), *added]}


class Exclusion:
    """Says `oneOf` within `root` by `anyOf`, as far as its branches are disjoint, or their opposites are known."""

    def __init__(self, root: Any) -> None:
        self._opposites = Opposites(root)
        self._disjointness = Disjointness(root)

    def exclusive(self, schema: Any) -> Any:
        """Return `schema`, and all within it, without `oneOf` where it can be said otherwise."""
        if isinstance(schema, list):
            return list(map(self.exclusive, schema))
        if not isinstance(schema, dict):
            return schema
        inner = {key: value if key in ("enum", "const") else self.exclusive(value) for key, value in schema.items()}
        branches = inner.get("oneOf")
        if not isinstance(branches, list) or len(branches) > MOST_BRANCHES:
            return inner
        try:
            alone = [self._alone(number, branches) for number in range(len(branches))]
        except Inexpressible:
            return inner
        rest = {key: value for key, value in inner.items() if key != "oneOf"}
        return {**rest, "allOf": [*rest.get("allOf", []), any_of(alone)]}

    def _alone(self, number: int, branches: list[Any]) -> Any:
        """Return the schema of values of this branch that no other one has; raise Inexpressible."""
        branch, others = branches[number], branches[:number] + branches[number + 1 :]
        shared = [other for other in others if not self._disjointness.holds(branch, other)]
        return all_of([branch, *map(self._opposites.of, shared)])


def _not(schema: dict[str, Any], key: str, opposites: Opposites) -> list[Any]:
    return [opposites.of(schema[key])]


def _if(schema: dict[str, Any], key: str, opposites: Opposites) -> list[Any]:
    condition, then, otherwise = schema[key], schema.get("then", True), schema.get("else", True)
    return [any_of([all_of([condition, then]), all_of([opposites.of(condition), otherwise])])]


def _dependent(schema: dict[str, Any], key: str, opposites: Opposites) -> list[Any]:
    needs = schema[key]
    if not isinstance(needs, dict):
        raise Inexpressible
    return [
        any_of([lacks(name), {"required": need} if isinstance(need, list) else need]) for name, need in needs.items()
    ]
