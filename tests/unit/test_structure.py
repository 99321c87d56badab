"""What the linters can't see: where key names, sends and public names may stand."""

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import cogworker
from cogworker import errors
from cogworker._redis.keys import Keys

SOURCE = Path(cogworker.__file__).parent


def modules():
    return sorted(SOURCE.rglob("*.py"))


def relative(path):
    return str(path.relative_to(SOURCE))


def literals(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            value = node.value
            yield value if isinstance(value, str) else value.decode("utf-8", "replace")


def test_key_names_stand_only_in_keys_py():
    keys = Keys("NS")
    names = [getattr(keys, name) for name in Keys.__slots__ if not name.startswith("_")]
    names += [keys.queue(""), keys.wake(""), keys.presence(""), keys.producer("")]
    parts = [re.escape(name.removeprefix("NS")) for name in names]
    # A key's name without its namespace, as it would stand in an f-string or a concatenation.
    key = re.compile(r"^(?:" + "|".join(parts) + r"|:in_flight)")

    found = {
        relative(path)
        for path in modules()
        if any(key.match(literal) for literal in literals(path))
    }
    assert found == {"_redis/keys.py"}


def test_scripts_get_every_key_by_its_index():
    allowed = re.compile(r"KEYS\[(?:\d|tonumber|i\]|i \+ \d\]|1 \+|6 \+)")
    for path in SOURCE.rglob("*.lua"):
        code = re.sub(r"--.*", "", path.read_text("utf-8"))
        assert not re.search(r"'[^']*:[^']*'\s*\.\.", code), f"{path} builds a key"
        for use in re.findall(r"KEYS\[[^\]]*\]?", code):
            assert allowed.match(use), f"{path}: {use}"


def test_only_runner_and_doorbell_send():
    senders = re.compile(r"\.(?:send_packed_command|send_command|execute_command|read_response)\(")

    found = {relative(path) for path in modules() if senders.search(path.read_text("utf-8"))}
    assert found <= {"_redis/runner.py", "_redis/doorbell.py"}


def test_public_names_are_importable():
    for name in cogworker.__all__:
        assert getattr(cogworker, name) is not None


def test_every_error_is_public_and_in_the_family_tree():
    own = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, BaseException)
    }

    assert own <= set(cogworker.__all__)
    assert all(name in errors.__doc__ for name in own)


def test_every_module_says_what_it_is_for():
    for path in modules():
        assert ast.get_docstring(ast.parse(path.read_text("utf-8"))), path


def test_every_module_can_be_imported_alone():
    for module in pkgutil.walk_packages([str(SOURCE)], "cogworker."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def test_no_module_is_long_without_a_reason():
    """Past 400 lines a module needs a reason."""
    reasons = {
        "embedded.py": "the races of five kinds of processes, told once",
        "_worker/dispatcher.py": "the loop that owns the hot connection, told once",
        "codec.py": "both directions of one trip, which must agree",
        "config.py": "every setting in one table, with all that reads it",
    }
    long = {relative(path) for path in modules() if path.read_text("utf-8").count("\n") > 400}

    assert long <= set(reasons)
