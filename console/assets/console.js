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
// A live part that cannot be shown again says so, and comes back by itself.
document.addEventListener("htmx:sseError", () => document.documentElement.classList.add("offline"));
document.addEventListener("htmx:sseOpen", () => document.documentElement.classList.remove("offline"));
// A live part that shows itself again keeps the focus and the scrolled tables.
(() => {
  const live = () => document.getElementById("live");
  const scrolled = () => [...live().querySelectorAll(".scroll")];
  let kept = null;
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target.id !== "live") return;
    const active = live().contains(document.activeElement) ? document.activeElement : null;
    kept = {
      link: active && active.getAttribute("href"),
      table: scrolled().indexOf(active),
      left: scrolled().map((table) => table.scrollLeft),
    };
  });
  document.addEventListener("htmx:afterSwap", () => {
    if (!kept || !live()) return;
    scrolled().forEach((table, i) => { table.scrollLeft = kept.left[i] || 0; });
    const links = [...live().querySelectorAll("a")];
    const again = links.find((link) => kept.link && link.getAttribute("href") === kept.link) || scrolled()[kept.table];
    if (again) again.focus({ preventScroll: true });
    kept = null;
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
