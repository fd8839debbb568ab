// What the page draws: a strip for each limit, and a proxy's last hour.

// el returns an element with the given attributes and children. Strings are shown as plain text, even
// if they contain markup.
export function el(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  return fill(e, attributes, children);
}

function shape(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(e, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

// span formats a number of milliseconds for people: 5 s, 1 h, 30 d.
export function span(ms) {
  for (const [unit, size] of [["d", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000]]) {
    if (ms >= size) return `${Math.round((ms / size) * 100) / 100} ${unit}`;
  }
  return `${ms} ms`;
}

// countdown formats the rest of a wait, rounded up.
export function countdown(ms) {
  if (ms <= 0) return "now";
  if (ms < 10000) return `${(Math.ceil(ms / 100) / 10).toFixed(1)} s`;
  const s = Math.ceil(ms / 1000), two = (n) => String(Math.floor(n)).padStart(2, "0");
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)}:${two(s % 60)}`;
  const clock = `${Math.floor((s % 86400) / 3600)}:${two((s % 3600) / 60)}:${two(s % 60)}`;
  return s < 86400 ? clock : `${Math.floor(s / 86400)} d ${clock}`;
}

// moment formats a time of day, with the date if it differs from the date of now.
export function moment(ms, now) {
  const text = new Date(Math.ceil(ms / 1000) * 1000).toISOString();
  const time = text.slice(11, 19);
  return text.slice(0, 10) === new Date(now).toISOString().slice(0, 10) ? time : `${text.slice(0, 10)} ${time}`;
}

// count formats a number for people: 1,000,000.
export const count = (n) => n.toLocaleString("en", {maximumFractionDigits: 2});

// units formats a number with its noun: 1 unit, 2 units.
export const units = (n, thing = "unit") => `${count(n)} ${thing}${n === 1 ? "" : "s"}`;

const wide = 1000, high = 100, bar = 12;

// Strip shows a window as bars that move to the left as time passes.
class Strip {
  constructor(per) {
    this.per = per;
    this.bars = shape("g");
    const grid = [0.25, 0.5, 0.75].map((x) => shape("line", {x1: wide * x, x2: wide * x, y1: 0, y2: high, class: "grid"}));
    this.svg = shape("svg", {viewBox: `0 0 ${wide} ${high}`, preserveAspectRatio: "none", "aria-hidden": "true"}, ...grid, this.bars);
    const axis = el("div", {class: "axis"}, el("span", {}, `${span(per)} ago`), el("span", {}, span(per / 2)), el("span", {}, "now"));
    this.element = el("div", {class: "strip"}, this.svg, axis);
  }

  // update redraws the bars if they have changed.
  update(buckets) {
    const shown = JSON.stringify(buckets);
    if (shown === this.shown) return;
    this.shown = shown;
    this.base = buckets.length ? Date.parse(buckets[buckets.length - 1].last) : 0;
    const groups = this.groups(buckets), highest = Math.max(...groups.map((g) => g.units));
    this.bars.replaceChildren(...groups.map((g) => {
      const h = Math.max(8, (g.units / highest) * (high - 8));
      return shape("rect", {x: g.x - bar, width: bar - 2, y: high - h, height: h}, shape("title", {}, units(g.units)));
    }));
  }

  // groups combines buckets whose bars would overlap, the newest first.
  groups(buckets) {
    const groups = [];
    for (const b of [...buckets].reverse()) {
      const x = wide - ((this.base - Date.parse(b.last)) / this.per) * wide;
      const g = groups[groups.length - 1];
      if (g && g.x - x < bar) g.units += b.units;
      else groups.push({x, units: b.units});
    }
    return groups;
  }

  frame(now) {
    if (this.base) this.bars.setAttribute("transform", `translate(${-((now - this.base) / this.per) * wide} 0)`);
  }
}

// Limit is the card that shows a limit.
export class Limit {
  constructor(section) {
    this.name = el("h3");
    this.free = el("p", {class: "free"});
    this.level = shape("rect", {height: 6, width: 0, rx: 3});
    const gauge = shape("svg", {class: "gauge", viewBox: "0 0 1000 6", preserveAspectRatio: "none", "aria-hidden": "true"}, this.level);
    this.next = el("p", {class: "next"});
    this.element = el("article", {class: "limit"}, el("header", {}, this.name, this.free), gauge);
    if (section.buckets && section.ahead === undefined) { // turns ahead would be to the right of the strip
      this.strip = new Strip(section.per_ms);
      this.element.append(this.strip.element);
    }
    this.element.append(this.next);
  }

  update(section, at) {
    this.section = section;
    this.at = at;
    const known = section.max !== undefined, used = section.used ?? section.level;
    const ahead = section.ahead ? `, ${count(section.ahead)} ahead` : "";
    const held = !section.per_ms; // the limit is from package inflight
    if (held) this.name.textContent = known ? units(section.max) : "Now";
    else this.name.textContent = known ? `${count(section.max)} in ${span(section.per_ms)}` : span(section.per_ms);
    this.name.title = section.limit ?? "";
    this.free.replaceChildren(...(known
      ? [el("b", {}, count(section.remaining)), ` free, ${count(used)} ${held ? "held" : "used"}${ahead}`]
      : [el("b", {}, count(used)), ` ${held ? "held" : "counted"}${ahead}`]));
    this.element.classList.toggle("idle", !used);
    this.element.classList.toggle("full", known && section.retry_after_ms > 0);
    this.level.setAttribute("width", known ? Math.min(1, used / section.max) * wide : 0);
    this.strip?.update(section.buckets);
  }

  // frame moves the bars and the countdown between updates.
  frame(now) {
    this.strip?.frame(now);
    const s = this.section, counts = s.next_units !== undefined, after = counts ? s.next_after_ms : s.retry_after_ms || s.reset_after_ms;
    const what = counts ? `${units(s.next_units)} back in ` : s.retry_after_ms ? "1 unit back in " : "at rest in ";
    const text = after ? what + countdown(this.at + after - now) + (s.per_ms ? "" : ", unless renewed") : "Nothing is counted.";
    if (this.next.textContent !== text) this.next.textContent = text;
  }
}

// hourChart draws the number of requests in each minute of an hour.
export function hourChart(minutes) {
  const most = Math.max(1, ...minutes.map((m) => m.allowed + m.denied + m.refused));
  const step = wide / minutes.length, bars = [];
  minutes.forEach((m, i) => {
    let y = high;
    for (const kind of ["allowed", "denied", "refused"]) {
      const h = (m[kind] / most) * (high - 4);
      y -= h;
      if (h > 0) bars.push(shape("rect", {class: kind, x: i * step, width: step - 2, y, height: h}));
    }
  });
  return shape("svg", {viewBox: `0 0 ${wide} ${high}`, preserveAspectRatio: "none", role: "img", "aria-label": `Requests in each of the last 60 minutes; at most ${most} per minute`}, ...bars);
}
