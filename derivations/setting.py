"""The options of single-location regression, checked: one set of words for shell and Python."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from derivations.activations import activation as find_activation
from derivations.slr import single_location
from derivations.tasks import NAMES as TASKS
from replica.errors import UsageError
from replica.model import Activation, Model

MAX_LENGTH = 4096
OPTIMAL = "optimal"


def as_number(name: str, value: Any, allowed: str) -> float:
    """A float from a number or its text; infinity passes, NaN and words do not."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise UsageError(name, value, allowed) from None
    if math.isnan(number):
        raise UsageError(name, value, allowed)
    return number


def positive(name: str, value: Any, also: str = "") -> float:
    """A finite number above zero; ``also`` names what else the caller allows."""
    allowed = "a finite number > 0" + also
    number = as_number(name, value, allowed)
    if not 0 < number < math.inf:
        raise UsageError(name, value, allowed)
    return number


def parse_length(value: Any) -> dict[int, float]:
    """A fixed length or a distribution.

    Accepts ``3``, ``"3"``, ``"1:0.25,2:0.5,3:0.25"`` or a mapping from length to probability.
    """
    allowed = f"a length 1..{MAX_LENGTH}, or length:probability,... with sum 1 and no duplicates"
    if isinstance(value, Mapping):
        items = [(k, v) for k, v in value.items()]
    else:
        text = str(value).strip()
        if ":" not in text:
            return {_one_length(text, value, allowed): 1.0}
        items = []
        for part in text.split(","):
            pieces = part.split(":")
            if len(pieces) != 2:
                raise UsageError("length", value, allowed)
            items.append((pieces[0], pieces[1]))
    lengths: dict[int, float] = {}
    for k, v in items:
        length = _one_length(str(k), value, allowed)
        probability = as_number("length", v, allowed)
        if length in lengths or not 0 < probability <= 1:
            raise UsageError("length", value, allowed)
        lengths[length] = probability
    if abs(math.fsum(lengths.values()) - 1) > 1e-9:
        total = math.fsum(lengths.values())
        raise UsageError("length", value, f"probabilities with sum 1 (the sum is {total:g})")
    return dict(sorted(lengths.items()))


def _one_length(text: str, value: Any, allowed: str) -> int:
    if not text.strip().isascii() or not text.strip().isdigit():
        raise UsageError("length", value, allowed)
    length = int(text) if len(text.strip()) < 10 else MAX_LENGTH + 1
    if not 1 <= length <= MAX_LENGTH:
        raise UsageError("length", value, allowed)
    return length


def parse_alphas(value: Any) -> tuple[tuple[float, ...], bool]:
    """Sample ratios and whether a list was asked for: ``2``, ``1:4:7`` or ``1,2,4``."""
    allowed = "a number > 0, a linear grid first:last:count, or a list a,b,c"
    numbers, many = parse_grid("alpha", value, allowed)
    if not numbers or not all(0 < a < math.inf for a in numbers):
        raise UsageError("alpha", value, allowed)
    return numbers, many


def parse_lengths(value: Any) -> tuple[tuple[Any, ...], bool]:
    """Lengths or distributions, and whether a list was asked for: ``3``, ``2,4,8``, or one
    distribution ``1:0.5,2:0.5``."""
    if isinstance(value, str) and "," in value and ":" not in value:
        return tuple(value.split(",")), True
    if isinstance(value, list | tuple):
        return tuple(value), True
    return (value,), False


def parse_grid(name: str, value: Any, allowed: str) -> tuple[tuple[float, ...], bool]:
    """Numbers and whether a list was asked for: ``2``, ``1:4:7``, ``0.1:10:7:log`` or ``1,2,4``."""
    if isinstance(value, str) and ":" in value:
        pieces = value.split(":")
        logarithmic = len(pieces) == 4 and pieces[3].strip() == "log"
        pieces = pieces[:3] if logarithmic else pieces
        if len(pieces) != 3 or not pieces[2].strip().isdigit():
            raise UsageError(name, value, allowed)
        first, last = (as_number(name, p, allowed) for p in pieces[:2])
        count = int(pieces[2]) if len(pieces[2]) < 6 else 0
        if not 1 <= count <= 10000 or (count == 1 and first != last):
            raise UsageError(name, value, allowed + ", count 1..10000")
        if logarithmic:
            if not (0 < first < math.inf and 0 < last < math.inf):
                raise UsageError(name, value, f"{allowed}, both ends > 0 for log")
            ratio = math.log(last / first) / max(1, count - 1)
            numbers = [first * math.exp(i * ratio) for i in range(count - 1)] + [last]
        else:
            step = (last - first) / max(1, count - 1)
            numbers = [first + i * step for i in range(count - 1)] + [last]
        many = True
    elif isinstance(value, str) and "," in value:
        numbers = [as_number(name, p, allowed) for p in value.split(",")]
        many = True
    elif isinstance(value, str) or not hasattr(value, "__iter__"):
        numbers, many = [as_number(name, value, allowed)], False
    else:
        numbers, many = [as_number(name, p, allowed) for p in value], True
    return tuple(numbers), many


@dataclass(frozen=True)
class Setting:
    """One SLR setting without ``alpha``. Build it with :func:`make_setting`, which checks."""

    task: str
    activation: Activation
    nu: float
    lengths: Mapping[int, float]
    reg_k: float
    reg_v: float
    noise: float
    parameters: Mapping[str, float] = field(default_factory=dict)
    """Values of the activation's parameters, by the user's names."""
    optimal: tuple[str, ...] = ()
    """Symbols of the ridge strengths that are to be chosen for the least test error."""

    def model(self) -> Model:
        return single_location(self.task, self.activation, strongest=math.isinf(self.nu))

    def values(self) -> dict[str, float]:
        """Parameter values by the names of their symbols."""
        values = {"nu": self.nu, "Delta": self.noise, "r_k": self.reg_k, "r_v": self.reg_v}
        values |= {p.symbol.name: self.parameters[p.name] for p in self.activation.parameters}
        if math.isinf(self.nu):
            del values["nu"]
        return values

    def data_values(self) -> dict[str, float]:
        """Those of them that the law of the data has, whoever learns."""
        return {n: v for n, v in self.values().items() if n in ("nu", "Delta")}

    def inputs(self) -> dict[str, Any]:
        """The ``inputs`` object of the JSON."""
        found: dict[str, Any] = {
            "task": self.task,
            "activation": self.activation.name,
            "nu": self.nu,
            "length": {str(k): v for k, v in self.lengths.items()},
            "reg_k": OPTIMAL if "r_k" in self.optimal else self.reg_k,
            "reg_v": OPTIMAL if "r_v" in self.optimal else self.reg_v,
            "noise": self.noise,
        }
        if self.activation.definition:
            found["definition"] = self.activation.definition
            found["normalised"] = self.activation.normalised
            found["parameters"] = dict(self.parameters)
        else:
            found |= dict(self.parameters)
        return found


def make_setting(
    *,
    activation: str | Activation,
    nu: Any,
    length: Any,
    task: str = "spiked",
    shift: Any = None,
    reg: Any = None,
    reg_k: Any = None,
    reg_v: Any = None,
    noise: Any = 0.1,
    parameter: Any = (),
    decay: bool = False,
    optimise: bool = False,
) -> Setting:
    """Check the options. Raises ``UsageError`` naming the field, the value and what is allowed.

    ``parameter`` gives values of the activation's parameters: a mapping, or texts ``name=value``.
    With ``decay`` the ridge strengths may be left out or zero: they are a weight decay, or not
    read at all. With ``optimise`` they may be ``"optimal"``; 1 then stands in their place.
    """
    if task not in TASKS:
        raise UsageError("task", task, ", ".join(TASKS))
    chosen = find_activation(activation) if isinstance(activation, str) else activation
    allowed = "0 to 1e8" + (", or inf" if task == "max" else " (inf for max only)")
    signal = as_number("nu", nu, allowed)
    if signal < 0 or (signal > 1e8 and not (math.isinf(signal) and task == "max")):
        raise UsageError("nu", nu, allowed)
    noise_std = as_number("noise", noise, "0 to 1e8")
    if not 0 <= noise_std <= 1e8:
        raise UsageError("noise", noise, "0 to 1e8")
    strengths = {}
    optimal: list[str] = []
    for name, own in (("reg_k", reg_k), ("reg_v", reg_v)):
        given = reg if own is None else own
        if optimise and isinstance(given, str) and given == OPTIMAL:
            strengths[name] = 1.0
            optimal.append(name.replace("reg", "r"))
            continue
        if decay and (given is None or as_number(name, given, "a number >= 0") == 0):
            strengths[name] = 0.0
            continue
        if given is None:
            raise UsageError("reg", "nothing", "--reg R, or both --reg-k and --reg-v, each > 0")
        strengths[name] = positive(
            "reg" if own is None else name, given, ", or optimal" if optimise else ""
        )
    parameters = _parameters(chosen, parameter, shift)
    return Setting(
        task=task,
        activation=chosen,
        nu=signal,
        lengths=parse_length(length),
        reg_k=strengths["reg_k"],
        reg_v=strengths["reg_v"],
        noise=noise_std,
        parameters=parameters,
        optimal=tuple(optimal),
    )


def _parameters(activation: Activation, given: Any, shift: Any) -> dict[str, float]:
    """The value of every parameter: the given one, checked, or the default."""
    known = {p.name: p for p in activation.parameters}
    values = {p.name: p.default for p in activation.parameters}
    pairs = list(given.items()) if isinstance(given, Mapping) else []
    if not isinstance(given, Mapping):
        for text in [given] if isinstance(given, str) else given:
            name, mark, value = str(text).partition("=")
            if not mark:
                raise UsageError("parameter", text, "NAME=VALUE")
            pairs.append((name.strip(), value))
    if shift is not None:
        if activation.name != "erf":
            raise UsageError("shift", shift, "nothing: only erf has a shift")
        pairs.append(("shift", shift))
    for name, value in pairs:
        if name not in known:
            allowed = ", ".join(known) or f"nothing: {activation.name} has no parameters"
            raise UsageError("parameter", name, allowed)
        values[name] = known[name].checked(value)
    if pairs and activation.definition:
        from derivations.own_activation import check_range

        check_range(activation, {p.symbol.name: values[p.name] for p in activation.parameters})
    return values
