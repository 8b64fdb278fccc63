"use strict";
// The theme: the system's, unless the user has chosen one.
(() => {
  const stored = localStorage.getItem("theme");
  if (stored) document.documentElement.dataset.theme = stored;
  document.addEventListener("click", (event) => {
    if (!event.target.closest("#theme")) return;
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = document.documentElement.dataset.theme || (dark ? "dark" : "light");
    const next = now === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    localStorage.setItem("theme", next);
  });
})();
// The live part shows itself again every few seconds, while the tab is seen.
(() => {
  const AGAIN_MS = 5000;
  const again = () => {
    const live = document.getElementById("live");
    if (live && document.visibilityState !== "hidden") htmx.trigger(live, "console:again");
  };
  const offline = (is) => document.documentElement.classList.toggle("offline", is);
  setInterval(again, AGAIN_MS);
  document.addEventListener("visibilitychange", again);
  document.addEventListener("htmx:sendError", () => offline(true));
  document.addEventListener("htmx:beforeSwap", () => offline(false));
})();
// A live part that shows itself again keeps the focus, the scrolled tables and what is unfolded, and waits while
// something is dragged or text is selected.
(() => {
  const live = () => document.getElementById("live");
  const scrolled = () => [...live().querySelectorAll(".scroll")];
  let kept = null;
  let pressed = false;
  document.addEventListener("pointerdown", (event) => { pressed = event.button === 0 && Boolean(event.target.closest("#live")); });
  for (const name of ["pointerup", "pointercancel"]) document.addEventListener(name, () => { pressed = false; });
  const selects = () => {
    const selection = getSelection();
    return !selection.isCollapsed && live().contains(selection.anchorNode);
  };
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target.id !== "live") return;
    kept = null;
    // An error replaces what may not hold any more, unless another server has answered.
    event.detail.shouldSwap = event.detail.serverResponse.includes('id="live"');
    if (event.detail.requestConfig.elt.id === "live" && (pressed || selects())) {
      event.detail.shouldSwap = false;
      return;
    }
    const active = live().contains(document.activeElement) ? document.activeElement : null;
    kept = {
      active,
      link: active && active.getAttribute("href"),
      table: scrolled().indexOf(active),
      left: scrolled().map((table) => table.scrollLeft),
      open: [...live().querySelectorAll("details[open]")].map((details) => details.id),
      caret: active && active.matches("input[type=search], input[type=text], input:not([type])") && [active.selectionStart, active.selectionEnd],
    };
  });
  document.addEventListener("htmx:afterSwap", () => {
    if (!kept || !live()) return;
    const { active, link, table, left, caret, open } = kept;
    kept = null;
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    scrolled().forEach((table, i) => { table.scrollLeft = left[i] || 0; });
    const links = [...live().querySelectorAll("a")];
    // A preserved field is the same element.
    const same = active && active.isConnected && active;
    const again = same || links.find((one) => link && one.getAttribute("href") === link) || scrolled()[table];
    if (!again || again === document.activeElement) return;
    again.focus({ preventScroll: true });
    if (same && caret) same.setSelectionRange(...caret);
  });
})();
// A table that scrolls can be focused, so that the arrow keys move it.
(() => {
  const mark = () => {
    for (const table of document.querySelectorAll(".scroll")) {
      const scrolls = table.scrollWidth > table.clientWidth;
      if (scrolls) table.setAttribute("tabindex", "0");
      else table.removeAttribute("tabindex");
    }
  };
  document.addEventListener("DOMContentLoaded", mark);
  document.addEventListener("htmx:afterSwap", mark);
  window.addEventListener("resize", mark);
})();
// A search field of a page hides the rows that lack its text while the user writes.
(() => {
  const filter = () => {
    const form = document.querySelector("#live form.filter:has(input[type=search])");
    if (!form) return;
    // The rows of the page fit what the server was asked for.
    const { value, defaultValue } = form.querySelector("input[type=search]");
    const words = value === defaultValue ? "" : value.trim().toLowerCase();
    for (const body of document.querySelectorAll(form.id === "gpu-filter" ? "table.gpu tbody" : "#live tbody")) {
      const group = body.querySelector("tr.group, tr.gpu-node");
      const rows = [...body.rows].filter((row) => row !== group);
      for (const row of rows) row.hidden = !`${group?.textContent} ${row.textContent}`.toLowerCase().includes(words);
      body.hidden = rows.every((row) => row.hidden);
    }
  };
  document.addEventListener("input", (event) => { if (event.target.matches("form.filter input[type=search]")) filter(); });
  document.addEventListener("htmx:afterSwap", filter);
})();
