"""docs/operators.md tells what is so."""

from pathlib import Path

from tests.conformance import compared_page, domains, page

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"


def test_the_page_is_current_up_to_the_comparison_with_onnxruntime():
    # errors differ in their last bits from one processor to another
    shown, _, _ = PAGE.read_text(encoding="utf-8").partition(compared_page.TITLE)
    assert _without_errors(shown) == _without_errors(f"{page.by_version()}\n")


def test_operators_by_domain_are_those_of_the_registries():
    assert domains.section() in PAGE.read_text(encoding="utf-8")


def test_no_operator_of_the_standard_is_left_out():
    import onnx

    schemas = [s for s in onnx.defs.get_all_schemas_with_history() if not s.deprecated]
    wanted = {(s.domain, s.name, s.since_version) for s in schemas if s.domain == ""}
    assert wanted <= set(page.operators())


def _without_errors(text: str) -> list[str]:
    return [line.rsplit("|", 2)[0] for line in text.splitlines()]
