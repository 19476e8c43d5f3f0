"""axe-core in the page that is open: what it says is wrong, with its place. It knows a part of what WCAG 2.2 asks for."""

from pathlib import Path

import axe_playwright_python
from playwright.sync_api import Page

SOURCE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
WCAG = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
RULES = (*WCAG, "best-practice")
RUN = """async (rules) => {
    const found = await axe.run(document, {runOnly: rules, resultTypes: ['violations']});
    return found.violations.flatMap(
        rule => rule.nodes.map(node => `${rule.id}: ${node.target}: ${node.html.slice(0, 200)}`));
}"""


def violations(page: Page, rules: tuple[str, ...] = RULES) -> list[str]:
    """The browser's debugger puts it in: the policy of the pages lets no script but theirs run."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(f"() => {{ {SOURCE} }}")
    found: list[str] = page.evaluate(RUN, list(rules))
    return found
