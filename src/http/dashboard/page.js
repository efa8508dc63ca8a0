// Draws what the process publishes, and draws it anew at each event. Every text goes into the page
// as text, never as markup: names and messages come from users.

/** How a cluster can stand, the worst first. */
const STANDS = {
  "timed-out": "timed out",
  failed: "failed",
  "not-applied": "not applied",
  away: "agent away",
  progressing: "progressing",
  started: "started",
  soaking: "soaking",
  held: "paused",
  waiting: "waiting",
  succeeded: "succeeded",
};
const TROUBLE = ["timed-out", "failed", "not-applied", "away"];
/** More squares than these say nothing to anybody. */
const MOST_CELLS = 3000;
/** Rows of a table before the rest is summed up. */
const MOST_ROWS = 100;

const page = document.getElementById("page");
const connection = document.getElementById("connection");
const filter = document.getElementById("filter");
let state;

/** An element; children that are no elements become text, and empty ones nothing. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== undefined && child !== ""));
  return element;
}

/** Makes `old` like `made`, and leaves alone what is the same: what is open stays open, and what is
    selected stays selected. */
function morph(old, made) {
  if (old.nodeType !== made.nodeType || old.nodeName !== made.nodeName || old.dataset?.key !== made.dataset?.key) {
    old.replaceWith(made);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== made.data) old.data = made.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (name !== "open" && !made.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of made.attributes) {
    if (old.getAttribute(name) === value || name === "open") continue;
    // The page's policy forbids the attribute, and allows a script to set the property.
    if (name === "style") old.style.cssText = value;
    else old.setAttribute(name, value);
  }
  const [before, after] = [[...old.childNodes], [...made.childNodes]];
  after.forEach((child, index) => (before[index] ? morph(before[index], child) : old.append(child)));
  before.slice(after.length).forEach((child) => child.remove());
}

function span(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => seconds >= size);
  if (first < 0) return "0s";
  const [[large, size], [small, part] = []] = units.slice(first);
  const rest = part ? Math.floor((seconds % size) / part) : 0;
  return `${Math.floor(seconds / size)}${large}${rest ? `${rest}${small}` : ""}`;
}

/** A time, told as how long ago it was. */
function since(time) {
  return time ? make("time", { datetime: time, title: time }, span(Date.now() - new Date(time))) : "";
}

const chip = (kind, text = kind) => make("span", { class: `chip ${kind}` }, text);
const number = (value) => value.toLocaleString("en");
const byName = new Intl.Collator("en", { numeric: true }).compare;

function count(many, one, more = `${one}s`) {
  return `${number(many)} ${many === 1 ? one : more}`;
}

/** A table of rows, of which the first are shown. A head that begins with # is one of numbers. */
function table(heads, rows, attributes = {}) {
  const names = heads.map((text) => text.replace("#", ""));
  // On a narrow screen the heads stand beside the cells.
  const named = (cells) => cells.map((cell, index) => {
    if (names[index]) cell.dataset.head = names[index];
    return cell;
  });
  const shown = rows.slice(0, MOST_ROWS).map((cells) => make("tr", {}, named(cells)));
  if (rows.length > shown.length) {
    const text = `and ${number(rows.length - shown.length)} more: filter to see them`;
    shown.push(make("tr", {}, make("td", { colspan: heads.length, class: "faint" }, text)));
  }
  const head = heads.map((text) => make("th", { scope: "col", class: text.startsWith("#") ? "number" : undefined }, text.replace("#", "")));
  const body = [make("thead", {}, make("tr", {}, head)), make("tbody", {}, shown)];
  return make("div", { class: "scroll" }, make("table", attributes, body));
}

const cell = (...content) => make("td", {}, content);
const nameCell = (text) => make("td", { class: "name" }, text);
const numberCell = (value) => make("td", { class: "number" }, value === undefined ? "" : number(value));

const wanted = (...names) => {
  const text = filter.value.trim().toLowerCase();
  return !text || names.some((name) => name.toLowerCase().includes(text));
};

function tile(label, value, small, kind = "") {
  return make("div", { class: `tile ${kind}` }, label, make("b", {}, value), make("small", {}, small));
}

/** What the actors of a role say, each with its name. */
function actors(role) {
  return (state.actors[role] ?? []).filter((actor) => actor.state).map((actor) => ({ actor: actor.name, ...actor.state }));
}

function sum(all, key) {
  return all.reduce((total, one) => total + (key(one) ?? 0), 0);
}

function tiles(seen) {
  const all = [];
  const { router, sets, agents, watches, sinks } = seen;
  if (router) {
    const away = router.away;
    all.push(tile("Clusters", number(router.clusters), away ? `${number(away)} away` : "with works", away ? "away" : ""));
  }
  if (router || sets.length) {
    const failed = sets.filter((set) => set.status.phase === "Failed").length;
    const ready = sets.filter((set) => set.status.phase === "Ready").length;
    const small = `${number(ready)} ready${failed ? `, ${number(failed)} failed` : ""}`;
    all.push(tile("Replica sets", number(sets.length), small, failed ? "bad" : ""));
    all.push(tile("Works on the hub", number(router?.works ?? 0), `${number(router?.unowned_works ?? 0)} not owned by a set`));
  }
  if (agents.length) {
    const troubled = sum(Object.entries(state.works.results), ([result, many]) => (result === "ok" || result === "waiting" ? 0 : many));
    const small = troubled ? `${number(troubled)} failing` : `of ${count(agents.length, "agent")}`;
    all.push(tile("Works here", number(sum(agents, (agent) => agent.works)), small, troubled ? "bad" : ""));
  }
  if (watches.length) {
    const [open, most] = [sum(watches, (one) => one.open), sum(watches, (one) => one.max_watches)];
    const waiting = sum(watches, (one) => one.waiting.length);
    const small = waiting ? `${number(waiting)} waiting for a slot` : "open / limit";
    all.push(tile("Watches", `${number(open)}/${number(most)}`, small, waiting ? "away" : ""));
  }
  if (sinks.length) {
    const failing = sinks.filter((sink) => sink.failing).length;
    const small = failing ? `${count(failing, "sink")} failing` : `to ${count(sinks.length, "sink")}`;
    all.push(tile("Events waiting", number(sum(sinks, (sink) => sink.waiting)), small, failing ? "bad" : ""));
  }
  for (const source of actors("WorkSource")) {
    all.push(tile("Works for the broker", number(source.waiting), `waiting; ${source.link}`, source.waiting ? "away" : ""));
  }
  const dead = state.streams.filter((stream) => stream.state !== "alive").length;
  all.push(tile("Failing streams", number(dead), `of ${number(state.streams.length)}`, dead ? "bad" : ""));
  if (state.panics) all.push(tile("Panics", number(state.panics), "please report them", "bad"));
  return make("div", { class: "tiles", "data-key": "tiles" }, all);
}

function bar(stands) {
  const total = sum(Object.values(stands), (many) => many);
  const named = Object.keys(STANDS).filter((stand) => stands[stand]).reverse();
  const parts = named.map((stand) => {
    const part = make("i", { class: stand });
    part.style.width = `${(100 * stands[stand]) / total}%`;
    return part;
  });
  const legend = named.map((stand) => make("li", {}, make("i", { class: stand }), `${STANDS[stand]} ${number(stands[stand])}`));
  const text = named.map((stand) => `${stands[stand]} ${STANDS[stand]}`).join(", ");
  return [make("div", { class: "bar", role: "img", "aria-label": text }, parts), make("ul", { class: "legend" }, legend)];
}

function feedback(resources) {
  const rows = resources.flatMap((resource) => resource.values.map((value) => {
    const counts = (value.counts ?? []).map((one) => `${one.value} ×${one.count}`).join(", ");
    const range = value.sum === undefined ? "" : `${number(value.min)} to ${number(value.max)}`;
    const object = `${resource.resource}/${resource.namespace ? `${resource.namespace}/` : ""}${resource.name}`;
    return [nameCell(object), cell(value.name), numberCell(value.sum), cell(range), cell(counts), numberCell(value.clusters)];
  }));
  const heads = ["Object", "Value", "#Sum", "Range", "Values", "#Clusters"];
  return rows.length ? [make("h4", {}, "Feedback over all clusters"), table(heads, rows, { class: "feedback" })] : [];
}

function clusters(set) {
  const named = set.clusters.filter((cluster) => wanted(cluster.name, set.actor));
  const rows = named.map((cluster) => {
    const values = Object.entries(cluster.values).map(([name, value]) => `${name} ${value}`).join(", ");
    return [nameCell(cluster.name), cell(chip(cluster.stand, STANDS[cluster.stand])), cell(since(cluster.since)), cell(values)];
  });
  if (!rows.length) return [];
  const summary = make("summary", {}, "Clusters (failing first)");
  const trouble = set.clusters.some((cluster) => TROUBLE.includes(cluster.stand));
  const attributes = { class: "clusters", open: trouble || set.clusters.length <= 10 ? "" : undefined };
  return [make("details", attributes, summary, table(["Cluster", "State", "Since", "Values"], rows))];
}

function rollout(set) {
  const [namespace, name] = set.actor.split("/");
  const phase = set.status.phase;
  const content = [
    make("div", { class: "title" },
      make("h3", {}, set.actor),
      phase ? chip(phase) : chip("waiting", "nothing selected"),
      make("span", { class: "faint" }, set.complete ? "" : "still loading")),
    make("p", { class: "message" }, set.status.message ?? ""),
    Object.keys(set.stands).length ? bar(set.stands) : [],
  ];
  const failing = Object.entries(set.failing).map(([work, error]) => [nameCell(work), cell(error)]);
  if (failing.length) content.push(make("h4", {}, "Works refused by the API server"), table(["Work", "Why"], failing));
  content.push(feedback(set.status.feedback ?? []), clusters(set));
  if (phase !== "Ready") {
    content.push(make("p", { class: "faint" }, "Why: ", make("code", {}, `muster explain mwrs ${name} -n ${namespace}`)));
  }
  return make("article", { class: "card set", "data-key": set.actor }, content.flat());
}

/** Where a set stands in the list: failed ones first, those that are ready last. */
function urgency({ status, stands }) {
  if (status.phase === "Failed") return 0;
  if (TROUBLE.some((stand) => stands[stand])) return 1;
  return status.phase === "Ready" ? 3 : 2;
}

function rollouts(sets) {
  const shown = sets.filter((set) => wanted(set.actor, ...set.clusters.map((cluster) => cluster.name)));
  shown.sort((one, other) => urgency(one) - urgency(other) || byName(one.actor, other.actor));
  const none = sets.length ? "No replica set matches the filter" : "No replica sets";
  return section("Rollouts", none, shown.map(rollout));
}

/** One square a cluster, in the colour of the worst that any set says of it. */
function fleet(sets, router) {
  const order = Object.keys(STANDS);
  const worst = new Map();
  for (const set of sets) {
    for (const { name, stand } of set.clusters) {
      const known = worst.get(name);
      if (!known || order.indexOf(stand) < order.indexOf(known.stand)) worst.set(name, { stand, set: set.actor });
    }
  }
  const named = [...worst].filter(([name]) => wanted(name)).sort(([one], [other]) => byName(one, other));
  if (!named.length) return [];
  const cells = named.slice(0, MOST_CELLS).map(([name, { stand, set }]) =>
    make("i", { class: stand, role: "listitem", title: `${name}: ${STANDS[stand]} (${set})` }));
  const paused = router?.first_paused ?? [];
  const notes = [];
  if (named.length > cells.length) notes.push(`The first ${number(cells.length)} are shown.`);
  if (paused.length) notes.push(`Paused: ${paused.slice(0, 10).join(", ")}${router.paused > 10 ? ` and ${number(router.paused - 10)} more` : ""}.`);
  const counts = {};
  for (const [, { stand }] of named) counts[stand] = (counts[stand] ?? 0) + 1;
  const card = [make("div", { class: "cells", role: "list" }, cells), bar(counts)[1], notes.length ? make("p", { class: "faint" }, notes.join(" ")) : []];
  return section("Fleet", "", [make("div", { class: "card fleet" }, card.flat())]);
}

function here({ agents, watches }) {
  const watchOf = new Map(watches.map((watch) => [watch.actor, watch]));
  const trouble = ({ cluster, synced }) => {
    const watch = watchOf.get(cluster);
    return !synced || watch?.waiting.length || Object.keys(watch?.refused ?? {}).length ? 0 : 1;
  };
  const shown = agents.filter((agent) => wanted(agent.cluster));
  if (!shown.length) return [];
  shown.sort((one, other) => trouble(one) - trouble(other) || byName(one.cluster, other.cluster));
  const rows = shown.map((agent) => {
    const watch = watchOf.get(agent.cluster);
    const refused = Object.keys(watch?.refused ?? {}).length;
    return [
      nameCell(agent.cluster), numberCell(agent.works), numberCell(agent.evictions),
      make("td", { class: "number" }, watch ? `${number(watch.open)}/${number(watch.max_watches)}` : ""),
      numberCell(watch?.waiting.length ?? 0), numberCell(refused), cell(agent.synced ? "" : "listing works"),
    ];
  });
  const content = [make("div", { class: "card" }, table(["Cluster", "#Works", "#Evicting", "#Watches", "#Waiting", "#Refused", ""], rows, { class: "agents" }))];
  const refusals = watches.flatMap((watch) => Object.entries(watch.refused).map(([key, why]) => [nameCell(watch.actor), cell(key), cell(why)]));
  if (refusals.length) content.push(make("div", { class: "card" }, make("h4", {}, "Refused watches (their objects are polled)"), table(["Cluster", "Watch", "Why"], refusals)));
  const troubled = Object.entries(state.works.troubled).filter(([name]) => wanted(name)).map(([name, error]) => [nameCell(name), cell(error)]);
  if (troubled.length) content.push(make("div", { class: "card" }, make("h4", {}, "Failing works"), table(["Work", "Why"], troubled, { class: "troubled" })));
  return section("Agents of this process", "", content);
}

function rules({ rules, stores, sinks }) {
  const content = [];
  const outlets = sinks.filter((sink) => wanted(sink.actor)).map((sink) => [
    nameCell(sink.actor), sink.failing ? cell(chip("failing"), " ", sink.failing[0], " ", since(sink.failing[1])) : cell(chip("alive", "ok")),
    numberCell(sink.waiting), numberCell(sink.delivered), numberCell(sink.objects), numberCell(sink.behind),
  ]);
  if (outlets.length) content.push(make("div", { class: "card" }, table(["Sink", "State", "#Waiting", "#Delivered", "#Objects", "#Areas behind"], outlets, { class: "sinks" })));
  const troubles = [
    ...stores.flatMap((store) => Object.entries(store.wrong).map(([rule, why]) => [store.actor, rule, why])),
    ...rules.flatMap((one) => Object.entries(one.unresolved).map(([rule, why]) => [one.actor, rule, why])),
    ...rules.filter((one) => one.discovery).map((one) => [one.actor, "discovery", one.discovery]),
  ].filter(([cluster, rule]) => wanted(cluster, rule));
  if (troubles.length) {
    const rows = troubles.map((texts) => texts.map((text, index) => (index ? cell(text) : nameCell(text))));
    content.push(make("div", { class: "card" }, table(["Cluster", "Rule", "What is not watched"], rows)));
  }
  return content.length ? section("Watch rules", "", content) : [];
}

function streams() {
  const shown = state.streams.filter((stream) => wanted(stream.name));
  const list = (some) => table(["Stream", "State", "Since", "Why"], some.map((stream) =>
    [nameCell(stream.name), cell(chip(stream.state)), cell(since(stream.since)), cell(stream.error ?? "")]), { class: "streams" });
  const alive = shown.filter((stream) => stream.state === "alive");
  const dead = shown.filter((stream) => stream.state !== "alive");
  dead.sort((one, other) => (one.state === "failing" ? 0 : 1) - (other.state === "failing" ? 0 : 1) || byName(one.name, other.name));
  const content = dead.length ? [list(dead)] : [];
  if (alive.length) content.push(make("details", {}, make("summary", {}, `${number(alive.length)} alive`), list(alive)));
  return section("Streams", "No streams", content.length ? [make("div", { class: "card" }, content)] : []);
}

function section(title, none, content) {
  const body = content.length ? content : [make("p", { class: "faint" }, none)];
  return [make("section", { "data-key": title }, make("h2", {}, title), body)];
}

function draw() {
  if (!state) return;
  const seen = {
    router: actors("ReplicaSets")[0],
    sets: actors("ReplicaSetAggregator"),
    agents: actors("ClusterAgent"),
    watches: actors("WatchSupervisor"),
    sinks: actors("EventQueue"),
    rules: actors("RuleSupervisor"),
    stores: actors("RuleStore"),
  };
  const lease = actors("LeaseHolder")[0];
  const about = [`${state.version}, ${state.parts}, up `, since(state.started_at)];
  if (lease) about.push(" ", chip(lease.standing === "Leading" ? "Leading" : "Waiting", lease.standing === "Leading" ? "holds the lease" : `stands by for ${lease.holder ?? "the lease"}`));
  morph(document.getElementById("process"), make("span", { id: "process" }, about));
  const parts = [tiles(seen)];
  if (seen.router || seen.sets.length) parts.push(rollouts(seen.sets), fleet(seen.sets, seen.router));
  parts.push(here(seen), rules(seen), streams());
  morph(page, make("main", { id: "page", class: page.className || undefined }, parts.flat()));
}

const events = new EventSource("dashboard/events");
let heard;
events.onmessage = (event) => {
  state = JSON.parse(event.data);
  draw();
};
events.onopen = () => {
  heard = undefined;
  connection.className = page.className = "";
  connection.textContent = "live";
};
events.onerror = () => {
  heard ??= new Date();
  connection.className = page.className = "lost";
  connection.textContent = `no connection since ${heard.toLocaleTimeString()}`;
};
filter.addEventListener("input", draw);
// Times are told as how long ago they were, which goes on while nothing changes.
setInterval(() => {
  for (const time of document.querySelectorAll("time")) time.textContent = span(Date.now() - new Date(time.dateTime));
}, 1000);
