"""A derivation is a graph of steps; each has a rule, premises, a conclusion and a check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

Conclusion = Mapping[str, Any]
"""Names to SymPy expressions."""


NOT_CHECKED = "entered, not derived: not checked"


@dataclass(frozen=True)
class CheckResult:
    """Whether a check passed, and what it compared."""

    passed: bool
    detail: str


Check = Callable[[Conclusion], CheckResult]
"""Tests a candidate conclusion by a route that does not repeat the step's own algebra."""


@dataclass(frozen=True)
class Step:
    """One step.

    ``assumption`` names what is assumed and not proved; ``derived`` is False where the conclusion
    was entered rather than derived.
    """

    name: str
    rule: str
    premises: tuple[str, ...]
    conclusion: Conclusion
    check: Check | None = None
    text: str = ""
    assumption: str = ""
    derived: bool = True

    def run_check(self) -> CheckResult:
        """The check of the step's own conclusion; one that cannot be carried out has failed."""
        if self.check is None:
            return CheckResult(True, NOT_CHECKED)
        try:
            return self.check(self.conclusion)
        except Exception as error:  # a check meets whatever a model brings
            why = " ".join(str(error).split())[:120]
            return CheckResult(False, f"not carried out: {type(error).__name__}: {why}")


@dataclass(frozen=True)
class Derivation:
    """Steps in order. Every premise is the name of an earlier step."""

    title: str
    steps: tuple[Step, ...]
    _by_name: Mapping[str, Step] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        seen: dict[str, Step] = {}
        for step in self.steps:
            missing = [p for p in step.premises if p not in seen]
            if missing or step.name in seen:
                raise ValueError(f"step {step.name}: premises {missing} missing or name repeated")
            seen[step.name] = step
        object.__setattr__(self, "_by_name", MappingProxyType(seen))

    def __getitem__(self, name: str) -> Step:
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def graph(self) -> Any:
        """The steps as a ``networkx.DiGraph``, edges from premise to conclusion."""
        import networkx as nx

        graph = nx.DiGraph(title=self.title)
        for step in self.steps:
            graph.add_node(step.name, step=step)
            graph.add_edges_from((p, step.name) for p in step.premises)
        return graph
