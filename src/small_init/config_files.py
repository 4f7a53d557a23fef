"""Reading and writing the YAML files of configs/: the one way, so that all readers agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError, YAMLError

from small_init.errors import UserError

Config = TypeVar("Config")


def merged(base: Config, *overrides: Any, where: str) -> Config:
    """`base` (a dataclass) with mappings laid over it; `where` names their origin in errors."""
    try:
        node = OmegaConf.merge(OmegaConf.structured(base), *overrides)
        return OmegaConf.to_object(node)  # type: ignore[return-value]
    except OmegaConfBaseException as error:
        reason = str(error.msg or error).splitlines()[0]
        raise UserError(
            f"{where}: key '{error.full_key}': {reason}. Correct or remove it."
        ) from None


def load_yaml(path: Path) -> Any:
    """A YAML file as an OmegaConf node; the one way configuration files are read."""
    try:
        return OmegaConf.load(path)
    except FileNotFoundError:
        raise UserError(
            f"{path} does not exist; see the folder {path.parent} for the names."
        ) from None
    except YAMLError as error:
        line = (
            error.problem_mark.line + 1
            if isinstance(error, MarkedYAMLError) and error.problem_mark
            else "?"
        )
        raise UserError(f"{path} is not valid YAML (line {line}); correct it.") from None


def dump(value: Any) -> str:
    """YAML whose numbers every reader of this project's files takes for the same numbers."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(yaml.SafeDumper):
    """Floats as `3.0e-03`: which PyYAML, OmegaConf and DVC (YAML 1.2) read as one number."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _float(dumper: yaml.SafeDumper, value: float) -> yaml.Node:
    text = repr(value)
    if "e" in text and "." not in text:
        text = text.replace("e", ".0e", 1)
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


_Dumper.add_representer(float, _float)
