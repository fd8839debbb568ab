// The search and the menu of the site. The index is loaded when somebody first searches.
"use strict";

const field = document.getElementById("site-search"), results = document.getElementById("site-results");
const indexAt = document.getElementById("site-index").href, root = new URL(".", document.getElementById("site-root").href);
let loading;

/** Loads the index once. It is a script, so that the site also works from files. */
function load() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = indexAt;
    script.onload = () => resolve(window.searchIndex);
    script.onerror = reject;
    document.head.append(script);
  });
  return loading;
}

/** Returns the sections that have all words, the best first. */
function find(index, words) {
  const scored = [];
  for (const section of index) {
    const title = section.title.toLowerCase(), text = section.text.toLowerCase();
    let score = 0;
    for (const word of words) {
      const inTitle = title.includes(word), times = text.split(word).length - 1;
      if (!inTitle && !times) { score = 0; break; }
      score += (inTitle ? 20 : 0) + Math.min(times, 5);
    }
    if (score) scored.push({ section, score });
  }
  return scored.sort((a, b) => b.score - a.score).slice(0, 12).map((s) => s.section);
}

/** Appends a text in which the words are marked. */
function mark(parent, text, words) {
  const pattern = new RegExp(`(${words.map((w) => w.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|")})`, "gi");
  text.split(pattern).forEach((part, i) => {
    const node = i % 2 ? document.createElement("mark") : document.createTextNode("");
    node.textContent = part;
    parent.append(node);
  });
}

/** Returns what is around the first word in a text. */
function excerpt(text, words) {
  const at = Math.max(0, text.toLowerCase().indexOf(words.find((w) => text.toLowerCase().includes(w)) ?? "") - 50);
  return (at > 0 ? "…" : "") + text.slice(at, at + 160) + (at + 160 < text.length ? "…" : "");
}

/** Shows what is found for what is typed. */
async function show() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  results.hidden = words.length === 0;
  if (results.hidden) return;
  const found = find(await load(), words);
  results.replaceChildren(...found.map((section) => {
    const item = document.createElement("li"), link = document.createElement("a");
    const title = document.createElement("b"), text = document.createElement("span");
    link.href = new URL(section.to.replace(/^\//, ""), root);
    mark(title, section.title, words);
    mark(text, excerpt(section.text, words), words);
    link.append(title, text);
    item.append(link);
    return item;
  }));
  if (!found.length) results.textContent = "Nothing has all these words.";
}

field.addEventListener("input", show);
field.form.addEventListener("submit", (e) => { e.preventDefault(); results.querySelector("a")?.click(); });
results.addEventListener("click", () => { results.hidden = true; });
document.addEventListener("click", (e) => { if (!e.target.closest("header, #site-results")) results.hidden = true; });
document.addEventListener("keydown", (e) => {
  if (e.key === "/" && document.activeElement !== field) { e.preventDefault(); field.focus(); }
  if (e.key === "Escape") { results.hidden = true; field.blur(); }
});

const menu = document.getElementById("site-menu"), pages = document.getElementById("site-pages");
menu.addEventListener("click", () => { menu.setAttribute("aria-expanded", pages.classList.toggle("open")); });
