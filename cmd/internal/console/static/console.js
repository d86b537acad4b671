"use strict";
// Refreshes the parts of a page that are marked data-live, every two seconds while the tab
// is visible. Pages work without this script.
(() => {
  const interval = 2000;
  const slowest = 30000;
  const live = document.getElementById("live");
  const parts = () => [...document.querySelectorAll("[data-live][id]")];
  let on = true;
  let delay = interval;
  let timer = 0;

  // busy tells that somebody is using a part, so that it must not be replaced now.
  const busy = (part) => {
    const s = getSelection();
    return part.querySelector("details[open]") ||
      part.querySelector("form,input,button") && (part.contains(document.activeElement) || part.matches(":hover")) ||
      (s && !s.isCollapsed && part.contains(s.anchorNode));
  };

  // replace keeps the focus on the link that has it, by its place.
  const replace = (part, fresh) => {
    if (part.isEqualNode(fresh)) return;
    const links = [...part.querySelectorAll("a")];
    const focused = links.indexOf(document.activeElement);
    const scroll = part.parentElement ? part.parentElement.scrollLeft : 0;
    part.replaceWith(fresh);
    if (fresh.parentElement) fresh.parentElement.scrollLeft = scroll;
    if (focused >= 0) {
      const next = fresh.querySelectorAll("a")[focused];
      if (next) next.focus({ preventScroll: true });
    }
  };

  const refresh = async () => {
    timer = 0;
    if (!on || document.hidden) return;
    const began = performance.now();
    let ok = false;
    try {
      const url = new URL(location.href);
      url.searchParams.delete("done");
      url.hash = "";
      const answer = await fetch(url, { headers: { "Trellis-Refresh": "1" }, cache: "no-store" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (!on) return; // stopped meanwhile
      ok = answer.ok;
      if (ok && document.getElementById("error") !== null) {
        location.replace(url);
        return;
      }
      if (ok) {
        for (const part of parts()) {
          const fresh = page.getElementById(part.id);
          if (fresh && !busy(part)) replace(part, document.adoptNode(fresh));
        }
      }
    } catch {
      ok = false;
    }
    live.classList.toggle("failing", !ok);
    // A server that answers slowly is asked more rarely.
    delay = ok ? Math.min(slowest, Math.max(interval, 10 * (performance.now() - began))) : Math.min(slowest, delay * 1.5);
    plan();
  };
  const plan = () => {
    if (timer === 0 && on && !document.hidden) timer = setTimeout(refresh, delay);
  };

  if (parts().length > 0 || document.querySelector("#error[data-retry]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Live";
    button.setAttribute("aria-pressed", "true");
    button.title = "Refresh every two seconds";
    button.addEventListener("click", () => {
      on = !on;
      button.setAttribute("aria-pressed", String(on));
      delay = interval;
      if (on && timer === 0) refresh();
    });
    live.append(button);
    live.hidden = false;
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && on && timer === 0) refresh();
    });
    plan();
  }

  // A notice is for once: it does not come again when the page is loaded again.
  const here = new URL(location.href);
  if (here.searchParams.has("done")) {
    here.searchParams.delete("done");
    history.replaceState(null, "", here);
  }

  // "/" goes to the field in which one looks for something.
  document.addEventListener("keydown", (e) => {
    if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input,textarea,select")) return;
    const field = document.querySelector(".filter input[type=search]") || document.getElementById("find");
    e.preventDefault();
    field.focus();
    field.select();
  });

  // All jobs of a page are chosen at once, and those that are chosen are counted.
  for (const table of document.querySelectorAll("table.jobs")) {
    const boxes = [...table.querySelectorAll("td.check input")];
    const head = table.querySelector("th.check");
    if (!head || boxes.length === 0) continue;
    const all = document.createElement("input");
    all.type = "checkbox";
    all.setAttribute("aria-label", "All jobs of this page");
    head.replaceChildren(all);
    const chosen = table.closest("form").querySelector(".chosen");
    const count = () => {
      const n = boxes.filter((b) => b.checked).length;
      all.checked = n === boxes.length;
      all.indeterminate = n > 0 && n < boxes.length;
      chosen.textContent = n + " chosen";
    };
    all.addEventListener("change", () => { for (const b of boxes) b.checked = all.checked; count(); });
    for (const b of boxes) b.addEventListener("change", count);
    count();
  }

  // Values under the pointer, in a chart's legend.
  const format = (v) => v === "" ? "–" : Number(v).toLocaleString("en-US", { maximumFractionDigits: 1 });
  const ago = (s) => s === 0 ? "now" : s < 60 ? s + " s ago" : s < 3600 ? Math.floor(s / 60) + " m " + s % 60 + " s ago" : Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " m ago";
  let restore = null;
  document.addEventListener("pointermove", (e) => {
    const canvas = e.target.closest ? e.target.closest(".plot[data-points] .canvas") : null;
    if (restore) { restore(); restore = null; }
    if (!canvas) return;
    const plot = canvas.closest(".plot");
    const series = plot.dataset.points.split(";").map((s) => s.split(","));
    const box = canvas.getBoundingClientRect();
    const n = series[0].length;
    const i = Math.max(0, Math.min(n - 1, Math.round((e.clientX - box.left) / box.width * (n - 1))));
    const cursor = canvas.querySelector(".cursor");
    cursor.style.left = 100 * i / (n - 1) + "%";
    cursor.hidden = false;
    const values = [...plot.querySelectorAll(".legend b")];
    const at = plot.querySelector(".at");
    const before = [...values.map((v) => v.textContent), at.textContent];
    values.forEach((v, k) => { v.textContent = format(series[k][i]); });
    at.textContent = ago((n - 1 - i) * Number(plot.dataset.step));
    restore = () => {
      cursor.hidden = true;
      values.forEach((v, k) => { v.textContent = before[k]; });
      at.textContent = before[before.length - 1];
    };
  });
})();
