"""One broker configuration out of a file, the environment and the command line.

    [log]                       HEADRACE_LOG_RETENTION_MS=60000       --set log.retention.ms=60000
    retention.ms = 60000

Each later source is stronger, key by key. In the file a key may be written as dotted keys, as
tables or quoted: TOML makes the same tree of all of them. An environment variable is the key
in capitals with underscores. A key that does not exist is refused, except in the environment:
there it is a warning, since others put variables of this name there (Kubernetes does, for every
service called headrace).
"""

import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.core.broker_configs import BROKER_KEYS, RENAMED_KEYS, BrokerConfig
from headrace.core.config_keys import format_value, suggestion
from headrace.core.errors import InvalidConfig, StartupRefused
from headrace.core.units import plain_number

logger = logging.getLogger(__name__)

PREFIX = "HEADRACE_"
RESERVED = ("HEADRACE_CONFIG", "HEADRACE_BOOTSTRAP", "HEADRACE_TEST_", "HEADRACE_TOOLS_")
"""Variables that are no broker keys: the file to read, the broker to ask, what tests use."""

_BY_VARIABLE = {
    PREFIX + name.upper().replace(".", "_"): name for name in (*BROKER_KEYS, *RENAMED_KEYS)
}


def load(
    file: str | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> BrokerConfig:
    """Join the sources; `InvalidConfig` names the source, the key and what to do."""
    environment = os.environ if environment is None else environment
    values: dict[str, str] = {}
    file = file or environment.get("HEADRACE_CONFIG")
    if file:
        values |= read_file(file)
    values |= read_environment(environment)
    for name, text in (overrides or {}).items():
        check_key(name, "--set")
        values[name] = text
    return BrokerConfig.from_static(
        {name: plain_number(name, text) for name, text in values.items()}
    )


def read_file(path: str) -> dict[str, str]:
    """The keys of a TOML file, as text."""
    import tomllib  # most brokers are started without a file

    try:
        with open(path, "rb") as file:
            tree = tomllib.load(file)
    except OSError as error:
        raise StartupRefused(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidConfig(f"{path} is not valid TOML: it is not UTF-8 ({error})") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig(f"{path} is not valid TOML: {error}", hint=_toml_hint(error)) from error
    values = {}
    for name, value in _flatten("", tree):
        check_key(name, path)
        values[name] = _as_text(name, value)
    return values


def _toml_hint(error: Exception) -> str:
    """Both mistakes are of those who write a file of this kind for the first time."""
    if "overwrite" in str(error):
        return 'a key that begins with another one is quoted, as in "max.connections.per.ip" = 5'
    return (
        'text is quoted in TOML, as in log.retention.ms = "1h" or '
        'listeners = "PLAINTEXT://127.0.0.1:9092"'
    )


def read_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The keys set by `HEADRACE_…` variables, as text."""
    values = {}
    for variable, text in environment.items():
        if not variable.startswith(PREFIX) or variable.startswith(RESERVED):
            continue
        name = _BY_VARIABLE.get(variable)
        if name is None:
            # Without the prefix: all that begins with it would look alike.
            wanted = variable.removeprefix(PREFIX).lower().replace("_", ".")
            hint = suggestion(wanted, BROKER_KEYS)
            logger.warning(
                "a variable names no configuration key and is ignored: variable=%s hint=%s",
                variable,
                hint or None,
            )
            continue
        values[name] = text
    return values


def check_key(name: str, source: str) -> None:
    """Refuse a key that does not exist, with the nearest one as a hint."""
    if name not in BROKER_KEYS and name not in RENAMED_KEYS:
        hint = suggestion(name, BROKER_KEYS)
        raise InvalidConfig(f"{source}: {name} is not a configuration key", hint=hint)


def _flatten(prefix: str, tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _flatten(f"{prefix}{name}.", value)
        else:
            yield prefix + name, value


def _as_text(name: str, value: Any) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = tuple(value)
    if not isinstance(value, str | bool | int | float | tuple):
        raise InvalidConfig(f"{name}: {value!r} is no value for a configuration key")
    return format_value(value) or ""
