import io
import re
import xml.etree.ElementTree as ET

import networkx as nx
import pytest

from derivations.slr import single_location
from replica.derivation.chain import derive_bayes
from replica.document.graph import COLUMNS, FORMATS, _boxes, draw
from tests.conftest import derived


@pytest.fixture(params=["erm", "bayes"])
def derivation(request):
    if request.param == "erm":
        return derived("softmax").derivation
    return derive_bayes(single_location("max")).derivation


def edges_of(derivation):
    number = {s.name: k for k, s in enumerate(derivation, 1)}
    return {(number[p], number[s.name]) for s in derivation for p in s.premises}


@pytest.mark.parametrize("form", ["dot", "mmd"])
def test_texts_hold_every_edge(derivation, form):
    arrow = "->" if form == "dot" else "-->"
    found = re.findall(rf"s(\d+) {arrow} s(\d+)", draw(derivation, form))
    assert {(int(a), int(b)) for a, b in found} == edges_of(derivation)


def test_graphml_reads_back(derivation):
    graph = nx.read_graphml(io.BytesIO(draw(derivation, "graphml").encode()))
    assert set(graph.nodes) == {s.name for s in derivation}
    assert set(graph.edges) == {(p, s.name) for s in derivation for p in s.premises}
    assert all(graph.nodes[s.name]["rule"] for s in derivation)


def test_svg_is_well_formed_with_a_path_per_edge_and_a_text_alternative(derivation):
    root = ET.fromstring(draw(derivation, "svg"))
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}path")) == len(edges_of(derivation))
    assert "steps" in root.get("aria-label")
    boxes = [g for g in root.findall(f"{space}g")]
    assert len(boxes) == len(derivation.steps)
    assert all(g.find(f"{space}title").text for g in boxes)


def test_boxes_lie_below_their_premises_and_do_not_overlap(derivation):
    boxes, width, height = _boxes(derivation)
    for box in boxes.values():
        assert 0 <= box.x <= width
        assert box.y + box.height <= height
        for p in box.step.premises:
            assert boxes[p].y + boxes[p].height < box.y
    rows = {}
    for box in boxes.values():
        rows.setdefault(box.y, []).append(box.x)
    assert all(len(xs) <= COLUMNS for xs in rows.values())
    for xs in rows.values():
        assert all(b - a > 176 for a, b in zip(sorted(xs), sorted(xs)[1:], strict=False))


def test_all_formats_are_drawn(derivation):
    assert all(len(draw(derivation, form)) > 500 for form in FORMATS)
