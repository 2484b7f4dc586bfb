"""`.junit.xml` of a comparison: checks as test results, for CI services that show them."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.file_formats import Format
from tracer.analyzers.views.page import Check
from tracer.text import line


def render(checks: Sequence[Check], options: ViewOptions) -> bytes:
    """UTF-8 XML as Ant's JUnit task writes it: one suite with a test for each check."""
    suite = Element("testsuite", name="tracer")
    suite.attrib |= {"tests": str(len(checks)), "skipped": "0", "time": "0"}
    suite.attrib["failures"] = str(sum(check.fault == "failure" for check in checks))
    suite.attrib["errors"] = str(sum(check.fault == "error" for check in checks))
    for check in checks:
        case = SubElement(suite, "testcase", classname=line(check.group), name=line(check.name))
        case.attrib["time"] = "0"
        if check.fault:
            SubElement(case, check.fault, message=line(check.text), type=check.fault)
        SubElement(case, "system-out").text = line(check.text)
    root = Element("testsuites")
    root.append(suite)
    xml: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return xml + b"\n"


FORMATS = (Format("junit.xml", "checks", render),)
