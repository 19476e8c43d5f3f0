// Shortcuts for who turned them on (`data-keys` on the body, from their session). No key decides: a key moves the
// focus or opens a form, and pressing what is focused is a second, separate act. Everything here is also a link,
// a button or a form on the page.
(() => {
  "use strict";

  const body = document.body;
  if (!("keys" in body.dataset)) return;

  const QUIET = 700; // ms after a swap or a new page in which no key of a decision counts: it was meant for the last one
  const FIRST = "g", AFTER = 1500;
  const help = document.getElementById("keys-help");
  let calmFrom = Date.now() + QUIET;
  let began = 0;

  const rows = () => [...document.querySelectorAll("[data-row]")].filter((row) => row.getClientRects().length);
  const current = () => document.activeElement && document.activeElement.closest("[data-row]");
  const link = (row) => row && row.querySelector(".row-title a");
  const named = (name) => document.querySelector(`[data-key="${name}"]`);
  const follow = (name) => { const found = document.querySelector(`[data-go="${name}"]`); if (found) found.click(); };

  function step(by) {
    const all = rows();
    const at = all.indexOf(current());
    const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by));
    const target = link(all[next]);
    if (!target) return;
    target.focus();
    target.scrollIntoView({ block: "nearest" });
  }

  function tick() {
    const box = current() && current().querySelector(".row-pick input");
    if (box) box.click();
  }

  // Opens what hides it, and puts the focus into its first field.
  function open(element) {
    const summary = element.matches("summary") ? element : element.querySelector("summary");
    const details = summary ? summary.parentElement : element.closest("details");
    if (details) details.open = true;
    const field = details && details.querySelector("textarea, select, input:not([type=hidden]), form button");
    (field || element).focus();
  }

  function reach(name) {
    const element = named(name);
    if (!element) return;
    if (element.matches("a[href]")) element.click();
    else open(element);
  }

  // At R3 there is no button before all was opened: then the first that was not.
  function approve() {
    const element = document.querySelector("[data-unopened]") || named("a");
    if (!element) return;
    const target = element.matches("a, button, summary, input") ? element : element.querySelector("summary, button, a") || element;
    target.focus();
    target.scrollIntoView({ block: "center" });
  }

  function undo() {
    const element = named("z");
    if (element) element.focus();
  }

  const search = () => { const field = document.getElementById("q"); if (field) { field.focus(); field.select(); } };

  const moves = {
    j: () => step(1), k: () => step(-1), o: () => { const target = link(current()); if (target) target.click(); }, x: tick,
    u: () => follow("inbox"), "/": search, "?": () => { if (help && !help.open) help.showModal(); },
  };
  const decisions = { a: approve, z: undo };
  for (const name of ["e", "r", "q", "d", "s"]) decisions[name] = () => reach(name);
  const goes = { i: "inbox", h: "history" };

  const typing = (element) => element.closest("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");

  document.addEventListener("keydown", (event) => {
    if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (typing(event.target) || (help && help.open)) return;
    if (began && Date.now() - began < AFTER && goes[event.key]) {
      began = 0;
      event.preventDefault();
      follow(goes[event.key]);
      return;
    }
    began = event.key === FIRST ? Date.now() : 0;
    const act = Object.hasOwn(moves, event.key) ? moves[event.key] : Object.hasOwn(decisions, event.key) ? decisions[event.key] : null;
    if (!act || (act === decisions[event.key] && Date.now() < calmFrom)) return;
    event.preventDefault();
    act();
  });

  document.addEventListener("htmx:afterSwap", () => { calmFrom = Date.now() + QUIET; });
  window.addEventListener("pageshow", () => { calmFrom = Date.now() + QUIET; });
})();
