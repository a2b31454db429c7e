// The page without this script is whole; with it sliders redraw the report, and what changes is asked for again.
"use strict";
const report = document.getElementById("report");
const form = document.getElementById("whatif");
const EVERY_MS = 3000;
const SETTLES_MS = 120; // a slider that is still moved asks for nothing
let asking = null;
let drawn = null; // what the server said last: the same is not drawn again, so that scroll and focus stay

function address(path, query) {
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

async function redraw(query) {
  if (asking) asking.abort();
  const mine = (asking = new AbortController());
  const began = performance.now();
  if (form) report.classList.add("stale");
  const wanted = new URLSearchParams(query);
  wanted.set("fragment", "1");
  try {
    const answer = await fetch(address(location.pathname, wanted), { signal: mine.signal, headers: { accept: "text/html" } });
    const text = await answer.text();
    report.classList.remove("stale");
    if (text === drawn) return Math.round(performance.now() - began);
    drawn = text;
    const read = new DOMParser().parseFromString(text, "text/html");
    const part = answer.ok ? read.body : read.querySelector("main");
    report.replaceChildren(...read.head.querySelectorAll("style"), ...part.childNodes);
    return Math.round(performance.now() - began);
  } catch (error) {
    if (error.name !== "AbortError") report.classList.add("stale");
    return null;
  }
}

if (form) {
  const stated = new URLSearchParams(location.search);
  const chosen = new Map(stated);
  const took = document.getElementById("took");
  let settling = 0;
  const shown = (slider) => {
    if (slider.dataset.scale === "linear") return Number(slider.value);
    const value = 10 ** Number(slider.value);
    return slider.dataset.whole === "1" ? Math.round(value) : Number(value.toPrecision(3));
  };
  const changed = async () => {
    const query = new URLSearchParams([...chosen]);
    const whole = address(location.pathname, query);
    document.getElementById("share").href = whole;
    document.getElementById("twin").href = address(`${location.pathname}.json`, query);
    history.replaceState(null, "", whole);
    const spent = await redraw(query);
    if (spent !== null) took.textContent = `${spent} ms`;
  };
  document.getElementById("share").href = location.href;
  for (const slider of form.querySelectorAll("input[type=range]")) {
    slider.addEventListener("input", () => {
      const value = shown(slider);
      slider.parentElement.querySelector("output").textContent = value.toLocaleString("en");
      slider.setAttribute("aria-valuetext", String(value));
      chosen.set(slider.name, String(value));
    });
    slider.addEventListener("change", () => {
      clearTimeout(settling);
      settling = setTimeout(changed, SETTLES_MS);
    });
  }
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => location.assign(location.pathname));
}

if (report && report.dataset.live) {
  setInterval(() => {
    if (!document.hidden) redraw(new URLSearchParams(location.search));
  }, EVERY_MS);
}

for (const act of document.querySelectorAll("button.act")) {
  act.addEventListener("click", async () => {
    if (!confirm(`${act.textContent}?`)) return;
    const answer = await fetch(act.dataset.address, { method: "POST", headers: { "content-type": "application/json" }, body: "{}" });
    const said = await answer.json();
    document.getElementById("done").textContent = answer.ok ? "asked for" : `${said.detail} ${said.hint}`;
    redraw(new URLSearchParams(location.search));
  });
}
