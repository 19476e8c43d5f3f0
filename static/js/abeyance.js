// Conveniences for pages that work without any of this: polling while the page is visible, countdowns by the
// server's clock, the reader's time zone, buttons locked while a request is in flight, typed text kept.
// Nothing is stored: no local or session storage, no cookies.
(() => {
  "use strict";

  const body = document.body;
  const live = document.getElementById("live");
  const main = () => document.getElementById("main");
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const say = (text) => { live.textContent = ""; setTimeout(() => { live.textContent = text; }, 50); };

  // -- Time: the server's clock, shown in the reader's zone ---------------------------------------------------

  const offset = body.dataset.now ? Date.parse(body.dataset.now) - Date.now() : 0;
  const now = () => Date.now() + offset;

  function inWords(seconds) {
    const pair = (unit, size, small, part) => {
      const rest = Math.floor((seconds % size) / part);
      return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${small}` : ""}`;
    };
    if (seconds >= 86400) return pair("d", 86400, "h", 3600);
    if (seconds >= 3600) return pair("h", 3600, "min", 60);
    return seconds >= 60 ? `${Math.floor(seconds / 60)} min` : `${seconds} s`;
  }

  function mood(left, total) {
    if (left <= 0) return "over";
    if (left <= 600) return "near";
    return total && left <= total / 4 ? "soon" : "calm";
  }

  const marks = [[600, "10 minutes left"], [300, "5 minutes left"], [60, "1 minute left"], [20, "20 seconds left"]];

  function announce(element, left, before) {
    if (!element.closest(".lead")) return;
    const crossed = marks.find(([mark]) => before > mark && left <= mark && left > 0);
    if (crossed) say(crossed[1]);
  }

  function expire(element) {
    if (!element.closest(".lead")) return;
    all("[data-expired]").forEach((notice) => {
      if (!notice.hidden) return;
      notice.hidden = false;
      say("Expired. Nothing was run.");
    });
    // An open panel stays, with what was typed in it, but for its buttons.
    for (const part of all(".decide .verbs > :not(details[open]), .decide #reasons")) part.hidden = true;
  }

  function tick() {
    for (const element of all("[data-until]")) {
      const left = Math.floor((Date.parse(element.dataset.until) - now()) / 1000);
      const before = element.dataset.left === undefined ? left : Number(element.dataset.left);
      element.dataset.left = left;
      element.className = `left left-${mood(left, Number(element.dataset.total))}`;
      const text = left > 0 ? `${inWords(left)} left` : "expired";
      const visible = element.querySelector(".left-visible");
      if (visible && visible.textContent !== text) visible.textContent = text;
      announce(element, left, before);
      if (left <= 0) expire(element);
    }
  }

  function localise(root) {
    for (const element of all("time[data-local]", root)) {
      const moment = new Date(element.getAttribute("datetime"));
      if (element.dataset.done || Number.isNaN(moment.getTime()) || moment.getTimezoneOffset() === 0) continue;
      const options = { hour: "2-digit", minute: "2-digit", hour12: false, timeZoneName: "short" };
      if (element.dataset.local === "day") Object.assign(options, { day: "numeric", month: "short", year: "numeric" });
      const utc = element.textContent.trim();
      element.title = utc;
      element.textContent = moment.toLocaleString("en-GB", options);
      if (element.closest(".lead-list")) element.textContent += ` (${utc.slice(-9).trim()})`;
      element.dataset.done = "1";
    }
  }

  // -- Pulse: ask whether something changed, only while somebody can see it -----------------------------------

  let misses = 0;

  function beat(element) {
    if (document.visibilityState === "visible" && document.contains(element)) window.htmx.trigger(element, "pulse");
  }

  function startPulses() {
    for (const element of all("[data-pulse]")) {
      if (element.dataset.beating) continue;
      element.dataset.beating = "1";
      const timer = setInterval(() => {
        if (!document.contains(element)) clearInterval(timer);
        else beat(element);
      }, Number(element.dataset.pulse) * 1000);
    }
  }

  function clock() {
    return new Date(now()).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  }

  function heard(reached) {
    const mark = document.querySelector("[data-live]");
    misses = reached ? 0 : misses + 1;
    if (!mark || (!reached && misses < 2)) return;
    const text = mark.querySelector("[data-live-text]");
    mark.classList.toggle("is-live", reached);
    mark.classList.toggle("is-offline", !reached);
    if (reached) text.textContent = `updated ${clock()} · live`;
    else if (misses === 2) text.textContent = `offline since ${clock()}, showing what we last knew`;
  }

  const titled = (count) => (count === "0" ? "Inbox" : `Inbox (${count})`);

  function announcePulse(element) {
    const said = element.querySelector(".notice-title, .pulse-pill span");
    const text = said ? said.textContent.replace(/\s+/g, " ").trim() : "";
    if (text && text !== element.dataset.announced) say(text);
    element.dataset.announced = text;
    const counted = element.querySelector("[data-pulse-count]");
    if (counted) document.title = document.title.replace(/^Inbox( \(\d+\+?\))?/, titled(counted.dataset.pulseCount));
  }

  // -- Forms: one request at a time, and what was typed stays -------------------------------------------------

  const buttonsOf = (form) => [...form.elements].filter((element) => element.type === "submit");

  // Forms that decide the same thing are locked together: approve and reject are one question.
  const together = (form) => (form.dataset.decides ? all("form[data-decides]") : [form]);

  function lock(form) {
    together(form).forEach((one) => { one.dataset.locked = "1"; });
    // Its button is read after this event, so it is marked a moment later.
    setTimeout(() => together(form).forEach((one) => {
      if (one.dataset.locked) buttonsOf(one).forEach((button) => button.setAttribute("aria-disabled", "true"));
    }), 0);
  }

  function unlock(form) {
    together(form).forEach((one) => {
      delete one.dataset.locked;
      buttonsOf(one).forEach((button) => button.removeAttribute("aria-disabled"));
    });
  }

  const unlockAll = () => all("form[data-locked]").forEach(unlock);

  let kept = [];

  function keep() {
    const fields = all("#main textarea, #main input:not([type=hidden], [type=password]), #main select");
    kept = fields.filter((field) => field.name && !field.readOnly).map((field) => ({
      name: field.name, value: field.value, checked: field.checked, tick: /checkbox|radio/.test(field.type),
      label: field.labels && field.labels[0] ? field.labels[0].textContent : "", typed: typedIn(field),
    }));
  }

  function typedIn(field) {
    if (field.readOnly || !("defaultValue" in field)) return false;
    return /checkbox|radio/.test(field.type) ? field.checked !== field.defaultChecked : field.value !== field.defaultValue;
  }

  // A tick comes back only beside the very same words: a fact that changed again has to be seen again.
  function restore() {
    for (const field of all("#main textarea, #main input:not([type=hidden], [type=password]), #main select")) {
      const label = field.labels && field.labels[0] ? field.labels[0].textContent : "";
      const tick = /checkbox|radio/.test(field.type);
      const was = kept.find((one) => one.name === field.name && (!tick || (one.value === field.value && one.label === label)));
      if (!was || field.readOnly) continue;
      if (tick) field.checked = was.checked;
      else if (was.typed || !field.value || field.tagName === "SELECT") field.value = was.value;
      if (was.typed && field.closest("details")) field.closest("details").open = true;
    }
    kept = [];
  }

  function trouble(title, text, checkUrl, checkText = "Check now", target = "") {
    const panel = document.getElementById("trouble");
    panel.querySelector("[data-trouble-title]").textContent = title;
    panel.querySelector("[data-trouble-text]").textContent = text;
    const check = panel.querySelector("[data-trouble-check]");
    check.hidden = !checkUrl;
    const link = check.querySelector("a");
    if (checkUrl) link.href = checkUrl;
    link.textContent = checkText;
    link.target = target;
    panel.hidden = false;
    panel.focus();
  }

  const quiet = () => { document.getElementById("trouble").hidden = true; };

  function lost(element) {
    if (element.matches("[data-pulse]")) { heard(false); return; }
    whenRenewed = null;
    unlockAll();
    if (element.dataset.decides) {
      trouble("We don’t know yet whether your decision was saved",
        "The answer did not reach this page. Don’t decide again before you have looked. What you typed is still here.", element.dataset.decides);
    } else trouble("That did not work", "The answer did not reach this page. What you typed is still here; try again.");
  }

  // -- Parts of a page that renew themselves: what somebody types in stays, and what they opened stays open -----

  let behind = false;
  let opened = [];

  const inUse = (element) => element.querySelector("details[open]") || all("textarea, input:not([type=hidden])", element).some(typedIn);

  document.addEventListener("htmx:oobBeforeSwap", (event) => {
    const { target } = event.detail;
    if (target.matches("[data-stays]") && inUse(target)) {
      event.detail.shouldSwap = false;
      behind = true;
      return;
    }
    const focus = target.contains(document.activeElement) ? document.activeElement.closest("details[id]") : null;
    opened = all("details[open][id]", target).map((details) => details.id);
    if (focus) opened.push(`${focus.id} > summary`);
    target.dataset.before = target.matches("[data-says]") ? saidBy(target) : "";
  });

  document.addEventListener("htmx:oobAfterSwap", (event) => {
    const { target } = event.detail;
    for (const id of opened) {
      const found = document.querySelector(`#${id}`);
      if (found && found.matches("details")) found.open = true;
      else if (found) found.focus();
    }
    opened = [];
    const text = target.matches("[data-says]") ? saidBy(target) : "";
    if (text && text !== target.dataset.before) say(text);
    target.dataset.before = text;
    localise(target);
    tick();
  });

  function saidBy(element) {
    const said = element.querySelector("[data-said]");
    return said ? said.textContent.replace(/\s+/g, " ").trim() : "";
  }

  // What was kept back comes with the next poll, whether or not anything has moved by then.
  document.addEventListener("htmx:configRequest", (event) => {
    if (!behind || !event.detail.elt.matches("[data-pulse]")) return;
    event.detail.path = event.detail.path.replace(/([?&])v=[^&]*/, "$1v=");
    behind = false;
  });

  // -- What htmx tells us -------------------------------------------------------------------------------------

  const path = (address) => new URL(address, window.location.href).pathname;

  // Signed out. Who typed something signs in beside this page, which then goes on with what is in it.
  let away = false;

  function signedOut() {
    if (away) return;
    const next = encodeURIComponent(window.location.pathname + window.location.search);
    const address = `${body.dataset.login}?next=${next}`;
    if (!all("#main textarea, #main input:not([type=hidden])").some(typedIn)) { window.location.assign(address); return; }
    away = true;
    trouble("You’re signed out", "Nothing was sent. What you typed is still here: sign in, then come back to this tab.", address, "Sign in", "_blank");
  }

  // The same page once more, for its new tokens, with what was typed. Said only when it is there: until then
  // the page still has the form that is too old, locked.
  let whenRenewed = null;

  function renew(then = null) {
    away = false;
    whenRenewed = then;
    keep();
    window.htmx.ajax("GET", window.location.href, { target: "#main", select: "#main", swap: "outerHTML" });
  }

  document.addEventListener("htmx:beforeRequest", (event) => {
    const element = event.detail.elt;
    if (element.matches("[data-pulse]")) {
      if (document.visibilityState !== "visible") event.preventDefault();
      return;
    }
    if (element.matches("form") && !navigator.onLine) {
      event.preventDefault();
      unlock(element);
      trouble("You’re offline", "Nothing was sent. What you typed is kept in this tab.");
      return;
    }
    quiet();
    if (element.matches("[data-keep]")) keep();
  });

  // A redirect was followed already: go where it led, as a form without script would have.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { xhr, requestConfig, elt } = event.detail;
    if (xhr.status >= 400 && elt.matches("[data-pulse]")) event.detail.shouldSwap = false;
    if (xhr.status === 403 && xhr.responseText.includes("data-too-old")) {
      event.detail.shouldSwap = false;
      renew(() => trouble("This form was too old", "Nothing was sent. The form is new now, with what you typed; send it again."));
    }
    if (xhr.status < 400 && xhr.responseURL && path(xhr.responseURL) !== path(requestConfig.path)) {
      event.detail.shouldSwap = false;
      const signIn = body.dataset.login && path(xhr.responseURL) === path(body.dataset.login);
      if (signIn) signedOut();
      else window.location.assign(xhr.responseURL);
    }
  });

  document.addEventListener("htmx:afterRequest", (event) => {
    const { elt, xhr, successful } = event.detail;
    if (elt.matches("[data-keep]")) kept = []; // no new page came: all that was typed is still there
    if (elt.matches("[data-pulse]")) {
      if (xhr.status && xhr.status !== 401) heard(successful || xhr.status < 500);
      if (successful && away) renew();
      return;
    }
    if (!elt.matches("form")) return;
    if (!whenRenewed) unlock(elt);
    if (elt.dataset.then === "pulse" && successful) {
      const checked = document.getElementById("checked");
      if (checked) checked.textContent = "Checking…";
      say("Checking");
      for (const delay of [800, 2000]) setTimeout(() => all("[data-pulse]").forEach(beat), delay);
    }
  });

  document.addEventListener("htmx:responseError", (event) => {
    const { elt, xhr } = event.detail;
    if (xhr.status === 401) signedOut();
    else if (!elt.matches("[data-pulse]")) lost(elt);
  });
  document.addEventListener("htmx:sendError", (event) => lost(event.detail.elt));
  document.addEventListener("htmx:timeout", (event) => lost(event.detail.elt));

  // With the swap, not after it has settled: the form is never seen without what was typed.
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.elt.id === "main" && kept.length) restore();
    if (!event.detail.elt.matches("section[id^=section-]")) return;
    kept = [];
    noProblemAt(event.detail.elt.id);
  });

  // What was opened is no problem any more; the page's summary of problems is not sent again with it.
  function noProblemAt(id) {
    const link = document.querySelector(`#main [role=alert] a[href="#${id}"]`);
    if (!link) return;
    const summary = link.closest("[role=alert]");
    link.closest("li").remove();
    if (!summary.querySelector("li")) summary.remove();
  }

  document.addEventListener("htmx:afterSettle", (event) => {
    const element = event.detail.elt;
    localise(document);
    startPulses();
    if (element.matches("[data-announce]")) { announcePulse(element); return; }
    if (element.id !== "main") return;
    askForLook();
    (element.querySelector("[data-focus]") || element).focus();
    tick();
    if (whenRenewed) whenRenewed();
    whenRenewed = null;
  });

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.matches("form[data-lock]")) return;
    if (form.dataset.locked) { event.preventDefault(); event.stopImmediatePropagation(); return; }
    lock(form);
  }, true);

  window.addEventListener("pageshow", unlockAll);
  document.addEventListener("visibilitychange", () => {
    all("[data-pulse]").forEach(beat);
    if (away && document.visibilityState === "visible" && !all("[data-pulse]").length) renew();
  });
  document.addEventListener("click", (event) => {
    all(".menu[open]").forEach((menu) => { if (!menu.contains(event.target)) menu.open = false; });
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    all(".menu[open]").forEach((menu) => { menu.open = false; menu.querySelector("summary").focus(); });
  });

  // Facts too old to decide on are looked at again as soon as somebody reads the page: the same POST as the button.
  function askForLook() {
    if (document.visibilityState !== "visible") return;
    for (const form of all("form[data-auto]")) {
      form.removeAttribute("data-auto");
      form.requestSubmit();
    }
  }

  // A passkey signs for a decision: the browser's answer goes with the form.
  const signs = document.querySelector("form[data-passkey]");
  if (signs && window.allauth) {
    window.allauth.webauthn.forms.authenticateForm({ ids: { authenticate: "sign", credential: "credential" }, data: JSON.parse(signs.dataset.passkey) });
    document.addEventListener("allauth.error", (event) => {
      event.preventDefault();
      trouble("The passkey was not used", "Nothing was decided. Try again, or type a code.");
    });
  }

  localise(document);
  askForLook();
  tick();
  setInterval(tick, 1000);
  startPulses();
  const first = main() && main().querySelector("[data-focus]");
  if (first) first.focus();
})();
