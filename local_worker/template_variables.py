"""The variables that a chat template knows."""

import logging
import re

log = logging.getLogger(__name__)
# Tags that transformers adds to the language: they mark what the assistant generates, for training.
_GENERATION = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")


def template_variables(template: str) -> frozenset[str]:
    """Return the names of the variables that `template` uses; none for one that Jinja cannot read."""
    from jinja2 import Environment, TemplateError, meta

    environment = Environment(extensions=["jinja2.ext.loopcontrols"])
    try:
        return frozenset(meta.find_undeclared_variables(environment.parse(_GENERATION.sub("", template))))
    except TemplateError as error:
        log.info("the chat template's variables are not known", extra={"reason": str(error)})
        return frozenset()
