// The script of slidegate's page. The page shows what its URL asks for: an event, an account or an overview.
import {Limit, count, countdown, el, hourChart, moment, span, units} from "./draw.js";

const $ = (id) => document.getElementById(id);
const now = () => performance.now() + ahead; // by the Redis clock
let ahead = 0;

// text sets the text of an element, but only if it differs, so that a screen reader does not repeat it.
function text(id, value) {
  if ($(id).textContent !== value) $(id).textContent = value;
  $(id).hidden = value === "";
}

// stream calls show with each update, and shows the state of the connection. While the page is hidden,
// the connection is closed.
function stream(address, show) {
  let source;
  const open = () => {
    source?.close();
    source = new EventSource(address);
    source.onmessage = (message) => {
      const update = JSON.parse(message.data);
      text("trouble", update.error ?? "");
      $("live").className = update.error ? "" : "on";
      text("live", update.error ? "retrying" : "live");
      show(update);
    };
    source.onerror = () => {
      $("live").className = "";
      text("live", "no connection; trying again");
      if (source.readyState === EventSource.CLOSED) setTimeout(() => document.hidden || open(), 2000);
    };
  };
  document.addEventListener("visibilitychange", () => {
    source.close();
    if (!document.hidden) open();
  });
  open();
}

const cards = new Map();

// limits shows the limits of an event or a budget as cards in the element place.
function limits(state, place, prefix = "") {
  const at = Date.parse(state.at), kept = new Set();
  for (const section of state.limits ?? []) {
    const key = `${prefix}${section.per_ms}`;
    kept.add(key);
    if (!cards.has(key)) cards.set(key, new Limit(section));
    const card = cards.get(key);
    card.update(section, at);
    if (card.element.parentNode !== place) place.append(card.element);
  }
  for (const [key, card] of cards) {
    if (key.startsWith(prefix) && card.element.parentNode === place && !kept.has(key)) {
      card.element.remove();
      cards.delete(key);
    }
  }
}

let end = 0; // when the wait ends, by the Redis clock

// verdict shows whether an attempt is allowed now and, if not, when it will be. A limiter of package
// pace denies nothing: an attempt waits for its turn.
function verdict(state, answer, because) {
  const waits = state.allowed === false, pace = state.estimator === "pace";
  const kind = state.allowed === undefined || waits && pace ? "unknown" : waits ? "denied" : "allowed";
  $("verdict").hidden = false;
  $("verdict").className = `verdict ${kind}`;
  text("answer", answer);
  text("because", because);
  end = waits ? Date.parse(state.at) + state.retry_after_ms : 0;
  $("wait").hidden = !end;
  if (end) text("until", `${pace ? "turn" : "allowed"} at ${moment(end, now())}${state.leases ? ", unless renewed" : ""}`);
}

// free returns the number of units that are free under all limits whose Max is known.
const free = (all) => Math.min(...all.filter((s) => s.limit).map((s) => s.remaining));

// others returns a note if Redis also stores limits whose Max is unknown.
const others = (all, what = "deny") => all.every((s) => s.limit) ? "" : `; other limits are stored, and may ${what} too`;

// turns describes the newest turn and the last pause of package pace.
function turns(state) {
  const at = Date.parse(state.at);
  const when = (time, after, ahead, past) => !time ? "" : after
    ? `${ahead} in ${countdown(after)}, at ${moment(Date.parse(time), at)}. `
    : `${past} at ${moment(Date.parse(time), at)}. `;
  return when(state.newest, state.newest_after_ms, "The newest turn comes", "The newest turn came") +
    when(state.paused_until, state.paused_for_ms, "The pause ends", "The last pause ended");
}

// leases returns a table of package inflight's leases.
function leases(state) {
  const at = Date.parse(state.at);
  const rows = state.leases.map((l) => [l.holder || "none", count(l.units), moment(Date.parse(l.since), at), moment(Date.parse(l.until), at)]);
  return table("Leases", ["holder", "units", "since", "until"], rows, "Nobody holds a unit.");
}

function showEvent(state) {
  text("where", `${state.limiter} on ${state.redis}, key ${state.key}`);
  const all = state.limits ?? [], full = all.filter((s) => s.retry_after_ms > 0);
  text("turns", state.token ? `The last token is ${state.token}.` : turns(state));
  text("override", state.override_text ? `Override: ${state.override_text}` : "");
  if (state.leases) $("leases").replaceChildren(leases(state));
  if (state.override && state.override.mode !== "limits") verdict(state, state.allowed ? "Allowed" : "Denied", `${state.allowed ? "without limits, " : ""}by an override`);
  else if (state.allowed === false && state.estimator === "pace") verdict(state, "Waits", `for the next turn${others(all, "delay it")}`);
  else if (state.allowed === false && state.leases) verdict(state, "Denied", `${count(all[0].used)} of ${units(all[0].max)} held`);
  else if (state.allowed === false) verdict(state, "Denied", `by ${full.map((s) => s.limit).join(" and ")}`);
  else if (!state.stored && !state.override) verdict(state, state.allowed ? "Allowed" : "Unknown", "Nothing is counted: the counts are gone, or the event was never counted here. Or the limiter has another name or Secret, or the event is spelled differently.");
  else if (state.allowed) verdict(state, "Allowed", `${units(free(all))} at once${state.override ? "" : others(all)}`);
  else verdict(state, "Unknown", "Redis does not store the Max of a limit. Enter the limits of the service above.");
  if ($("reset")) $("reset").hidden = !state.stored;
  limits(state, $("limits"));
}

function showAccount(state) {
  const all = state.budgets.filter((b) => !b.budget.startsWith("challenged-")).flatMap((b) => b.limits);
  text("where", `login guard ${state.guard} on ${state.redis}${state.address ? `, from ${state.address}` : ""}`);
  if (!state.allowed) verdict(state, "Denied", `by ${state.why.map((r) => r.budget).join(" and ")}`);
  else if (state.known) verdict(state, "Allowed", `denied after ${units(free(all), "more failure")}${others(all)}`);
  else verdict(state, "Allowed", "No failures are counted: nobody has failed to log in to this account recently, or the service spells it differently.");
  const at = Date.parse(state.at);
  $("why").hidden = state.allowed;
  $("why").replaceChildren(...state.why.map((r) => el("li", {},
    el("b", {}, r.budget), `: ${r.text}. ${r.limit} allows the next at ${moment(at + r.retry_after_ms, at)}.`)));
  text("challenge", state.challenge_text);
  text("defaults", state.defaults ? "The limits are the defaults of package login. If the service has other limits, start slidegate inspect with --budget." : "");
  if ($("reset")) $("reset").hidden = !state.known;
  for (const b of state.budgets) limits(b, budget(b), `${b.budget}/`);
}

// budget returns the element for a budget's cards. Its title links to the budget's event.
function budget(b) {
  const id = `budget-${b.budget}`;
  if (!$(id)) {
    const title = el("h2", {}, el("a", {href: `?${b.link}`}, b.budget), el("small", {}, b.shown));
    $("limits").append(el("section", {class: "budget"}, title, el("div", {id, class: "cards"})));
  }
  return $(id);
}

// table returns a table with a heading. If there are no rows, it shows the text in empty instead.
function table(title, heads, rows, empty) {
  const cell = (name) => (c, i) => el(name, i ? {class: `number of-${heads[i]}`} : {}, c);
  const body = rows.length
    ? el("div", {class: "scroll"}, el("table", {}, el("thead", {}, el("tr", {}, ...heads.map(cell("th")))),
      el("tbody", {}, ...rows.map((r) => el("tr", {}, ...r.map(cell("td")))))))
    : el("p", {class: "faint"}, empty);
  return el("section", {}, el("h2", {}, title), body);
}

let drawn = ""; // what the overview shows

const tile = (name, value, kind = "") => el("div", {class: `tile ${kind}`}, el("b", {}, value), el("span", {}, name));

// overview shows a proxy's last hour.
function overview(o) {
  const shown = JSON.stringify({...o, at: ""});
  if (shown === drawn) return;
  drawn = shown;
  const sum = (kind) => o.minutes.reduce((n, m) => n + m[kind], 0), would = o.shadow ? " would be" : "";
  const focused = document.activeElement?.getAttribute("href");
  const most = o.most.map((e) => [e.link ? el("a", {href: `?${e.link}`}, e.shown) : e.shown, e.limit, count(e.denied), `${count(e.per_minute)}/min`, moment(Date.parse(e.last), Date.parse(o.at))]);
  const routes = o.routes.map((r) => [r.pattern || "ambiguous requests", r.limits || "none", count(r.allowed), count(r.denied), count(r.refused)]);
  const outages = o.outages.map((x) => [x.route, moment(Date.parse(x.began), Date.parse(o.at)), x.ended ? span(Math.max(1000, Date.parse(x.ended) - Date.parse(x.began))) : "still out"]);
  $("overview").replaceChildren(
    el("div", {class: "tiles"}, tile(`allowed${would && " (shadow)"}`, count(sum("allowed")), "allowed"), tile(`denied${would && " (shadow)"}`, count(sum("denied")), "denied"),
      tile("other refusals", count(sum("refused"))), tile("Redis", o.redis === "none" ? "not used" : o.redis, o.redis === "out" ? "denied" : "")),
    el("section", {class: "hour"}, el("h2", {}, "Requests in the last hour"), hourChart(o.minutes),
      el("div", {class: "axis"}, el("span", {}, "1 h ago"), el("span", {}, "30 min"), el("span", {}, "now"))),
    table("Most denied", ["event", "limit", "denied", "rate", "last"], most, "Nothing was denied in the last hour."),
    table("Routes, last hour", ["route", "limits", "allowed", "denied", "refused"], routes, ""),
    table("Outages of Redis", ["route", "began", "lasted"], outages, "None since this instance started."),
  );
  if (focused) document.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
}

// frame keeps the display in step with the Redis clock.
function frame() {
  const time = now();
  for (const card of cards.values()) card.frame(time);
  if (end) text("countdown", countdown(end - time));
  requestAnimationFrame(frame);
}

// syncClock sets the clock from a time that Redis reported. Of two readings that differ only a little,
// the one further ahead arrived with less delay.
function syncClock(time) {
  const seen = time - performance.now();
  if (seen > ahead || ahead - seen > 2000) ahead = seen;
}

// watch shows an event or an account, and lets the user reset it if the operator allows that.
function watch() {
  stream(`watch${location.search}`, (update) => {
    text("shown", update.shown);
    if (!update.state) return;
    syncClock(Date.parse(update.state.at));
    if (update.state.budgets) showAccount(update.state);
    else showEvent(update.state);
  });
  requestAnimationFrame(frame);
  $("reset")?.addEventListener("click", () => {
    text("forgotten", $("shown").textContent);
    $("confirm").returnValue = "";
    $("confirm").showModal();
  });
  $("confirm")?.addEventListener("close", reset);
}

async function reset() {
  if ($("confirm").returnValue !== "yes") return;
  text("failed", "");
  try {
    const answer = await fetch(`reset${location.search}`, {method: "POST"});
    if (!answer.ok) text("failed", `Some counts may not have been reset: ${await answer.text()}`);
  } catch {
    text("failed", "The connection was lost, so the reset may have failed; check the counts and try again.");
  }
}

if ($("state")) watch();
else if ($("overview")) stream("overview", (update) => overview(update.state));
