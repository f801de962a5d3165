"""What only tests use is no rule of the product: every class, function and method of the domain is used by it."""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import mustit_pipeline

PACKAGE = Path(mustit_pipeline.__file__).parent
DOMAIN = PACKAGE / "domain"

Function = ast.FunctionDef | ast.AsyncFunctionDef


def noun(name: str) -> str:
    """What a thing is, by the house's names: `CrawlerTask`, `leased_task` and `_task` are all a task."""
    return re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)[-1].lower() if re.search("[A-Za-z]", name) else name


def named(node: ast.expr | None) -> Iterator[str]:
    """The names that an expression's value goes by."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Call):
        yield from named(node.func)
    elif isinstance(node, ast.Subscript):
        yield from named(node.value)
        yield from (part for part in named(node.slice) if part.endswith("_id"))
    elif isinstance(node, ast.BinOp):
        yield from named(node.left)
        yield from named(node.right)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
        yield node.value


@dataclass
class Source:
    """One module: its tree, and what its variables hold as far as assignments and annotations tell."""

    tree: ast.Module
    held: dict[str, set[str]] = field(default_factory=dict[str, set[str]])

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._hold(named(target), named(node.value))
            elif isinstance(node, ast.AnnAssign):
                self._hold(named(node.target), named(node.annotation))
            elif isinstance(node, ast.arg):
                self._hold([node.arg], named(node.annotation))

    def _hold(self, names: Iterable[str], values: Iterable[str]) -> None:
        nouns = {noun(value) for value in values}
        for name in names:
            self.held.setdefault(name, set()).update(nouns)


@dataclass(frozen=True)
class Use:
    """Something that is read of something: where, what it is read of, and the call if it is called."""

    path: str
    line: int
    receivers: frozenset[str]
    call: ast.Call | None


def uses(path: str, source: Source, constants: dict[str, set[str]]) -> Iterator[tuple[str, Use]]:
    """Every attribute that a module reads; `self` is what the class around it is."""
    for top in source.tree.body:
        nodes = list(ast.walk(top))
        calls = {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
        for node in nodes:
            if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
                continue
            receivers: set[str] = set()
            for name in named(node.value):
                if name in ("self", "cls"):
                    receivers.add(noun(top.name) if isinstance(top, ast.ClassDef) else name)
                else:
                    receivers |= {noun(name.removesuffix("_id"))} | source.held.get(name, set())
                    receivers |= {noun(name)} | constants.get(name, set())
            yield node.attr, Use(path, node.lineno, frozenset(receivers), calls.get(id(node)))


def fits(function: Function, call: ast.Call) -> bool:
    """Whether a call has arguments that the function takes."""
    if any(isinstance(arg, ast.Starred) for arg in call.args) or any(word.arg is None for word in call.keywords):
        return True
    spec = function.args
    static = any("staticmethod" in named(decorator) for decorator in function.decorator_list)
    positional = [arg.arg for arg in (*spec.posonlyargs, *spec.args)][0 if static else 1 :]
    optional = set(positional[len(positional) - len(spec.defaults) :] if spec.defaults else [])
    optional |= {arg.arg for arg, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if default}
    taken = {*positional, *(arg.arg for arg in spec.kwonlyargs)}
    given = {*positional[: len(call.args)], *(str(word.arg) for word in call.keywords)}
    return len(call.args) <= len(positional) and given <= taken and taken - optional <= given


class Readings:
    """Everything that all modules read, by name: of something, or just so."""

    def __init__(self, sources: dict[str, Source]) -> None:
        constants: dict[str, set[str]] = {}
        for source in sources.values():
            for name, nouns in source.held.items():
                if name.isupper():
                    constants.setdefault(name, set()).update(nouns)
        self.of: dict[str, list[Use]] = {}
        self.plain: dict[str, list[tuple[str, int]]] = {}
        for path, source in sources.items():
            for name, use in uses(path, source, constants):
                self.of.setdefault(name, []).append(use)
            # Importing alone is no use.
            for node in [node for node in ast.walk(source.tree) if isinstance(node, ast.Name | ast.Attribute)]:
                for name in named(node):
                    self.plain.setdefault(name, []).append((path, node.lineno))

    def use(self, home: str, definition: ast.ClassDef | Function) -> bool:
        """Whether a class or function is named anywhere else."""
        return any(outside(home, definition, *place) for place in self.plain.get(definition.name, []))

    def use_of(self, home: str, method: Function, nouns: set[str]) -> bool:
        """Whether a method is read of something that goes by one of these nouns."""
        found = [use for use in self.of.get(method.name, []) if use.receivers & nouns]
        found = [use for use in found if use.call is None or fits(method, use.call)]
        return any(outside(home, method, use.path, use.line) for use in found)


def unused(domain: dict[str, str], others: dict[str, str]) -> set[str]:
    """The public classes, functions and methods of the domain that nothing outside of their own definition uses."""
    sources = {path: Source(ast.parse(text)) for path, text in (domain | others).items()}
    readings = Readings(sources)
    definitions = [(path, node) for path in domain for node in sources[path].tree.body]
    classes = [(path, node) for path, node in definitions if isinstance(node, ast.ClassDef)]
    bases = {node.name: {name for base in node.bases for name in named(base)} for _, node in classes}
    left = {
        node.name
        for path, node in definitions
        if isinstance(node, ast.ClassDef | Function) and not (node.name.startswith("_") or readings.use(path, node))
    }
    for path, node in classes:
        nouns = {noun(name) for name in family(node.name, bases)}
        methods = [method for method in node.body if isinstance(method, Function) and not method.name.startswith("_")]
        left |= {f"{node.name}.{method.name}" for method in methods if not readings.use_of(path, method, nouns)}
    return left


def outside(home: str, node: Function | ast.ClassDef, path: str, line: int) -> bool:
    """Whether a place is not inside a definition."""
    return path != home or not node.lineno <= line <= (node.end_lineno or node.lineno)


def family(name: str, bases: dict[str, set[str]]) -> set[str]:
    """A class and everything that inherits from it."""
    heirs = {heir for heir, parents in bases.items() if name in parents}
    return {name}.union(*(family(heir, bases) for heir in heirs))


def read(paths: Iterable[Path]) -> dict[str, str]:
    return {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in paths}


def test_everything_of_the_domain_is_used_by_the_product() -> None:
    domain = read(sorted(DOMAIN.glob("*.py")))
    others = read(
        path for path in sorted(PACKAGE.rglob("*.py")) if not {DOMAIN, PACKAGE / "simulator"} & set(path.parents)
    )
    assert len(domain) > 5
    assert len(others) > 50
    assert unused(domain, others) == set()


TASKS = """
class CrawlerTask:
    def cancel(self, at): ...
    def end(self, at): self.cancel(at)
    @property
    def attempts(self): return 1
class Id:
    def new(self): ...
class TaskId(Id): ...
"""
USED = "def work(task: CrawlerTask):\n    task.end(now)\n    print(task.attempts, TaskId().new())\n"


def test_the_rule_lets_used_code_pass() -> None:
    assert unused({"task": TASKS}, {"worker": USED}) == set()


@pytest.mark.parametrize(
    ("used", "left"),
    [
        (USED.replace("task.end(now)", "task.end()"), {"CrawlerTask.end"}),
        (USED.replace("task.end(now)", "server.end(now)"), {"CrawlerTask.end"}),
        (USED.replace("task.attempts", "retries.attempts"), {"CrawlerTask.attempts"}),
        (USED.replace("TaskId().new()", "TaskId()"), {"Id.new"}),
        (USED.replace("TaskId()", "id"), {"TaskId"}),
        ("from task import CrawlerTask\nTaskId.new\n", {"CrawlerTask", "CrawlerTask.end", "CrawlerTask.attempts"}),
    ],
)
def test_the_rule_notices(used: str, left: set[str]) -> None:
    assert unused({"task": TASKS}, {"worker": used}) == left


def test_a_call_of_itself_is_no_use() -> None:
    alone = "class CrawlerTask:\n    def cancel(self, at): self.cancel(at)\n"
    assert unused({"task": alone}, {"worker": "CrawlerTask()"}) == {"CrawlerTask.cancel"}
