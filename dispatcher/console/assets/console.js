// The script of the console. Pages work without it: it refreshes them, sends the browser's time zone and adds keys.
const root = document.documentElement;
root.classList.add("script");
const $ = (selector, within = document) => within.querySelector(selector);
const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

// The browser's zone, so that the server can show its times. A page for another zone is loaded again.
function tellZone() {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "";
  const secure = location.protocol === "https:";
  const name = (secure ? "__Host-" : "") + "carillon-zone";
  const known = document.cookie.split("; ").includes(`${name}=${encodeURIComponent(zone)}`);
  if (known || !zone) return;
  document.cookie = `${name}=${encodeURIComponent(zone)}; Path=/; Max-Age=31536000; SameSite=Lax${secure ? "; Secure" : ""}`;
  if (root.dataset.zone === "browser") location.reload();
}

// A timeline that is wider than the screen begins with the present in sight.
function showNow() {
  const line = $(".timeline .now-line");
  const box = line?.closest(".scroll");
  if (box) box.scrollLeft += line.getBoundingClientRect().left - box.getBoundingClientRect().right + box.clientWidth / 4;
}

// Settings apply as soon as they are chosen.
function submitOnChange() {
  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-submit-on-change]");
    if (form) form.requestSubmit();
  });
}

// The refresh gets the same page again, and replaces the changed parts. It waits while the page is hidden, while a person does
// something on it, and while a person has paused it. After a failure it tries again with growing pauses. Times are in ms.
const refresh = {
  every: 10_000, most: 300_000, patience: 30_000,
  paused: sessionStorage.getItem("refresh") === "paused", loading: false, again: false, failures: 0, tag: "", timer: 0,
};

function changed(field) {
  if (!field.matches("select")) return field.value !== field.defaultValue || field.checked !== field.defaultChecked;
  return field.selectedIndex !== Math.max(0, [...field.options].findLastIndex((option) => option.defaultSelected));
}

// Input that a person has begun, and would lose with the replaced parts.
function begun() {
  return !getSelection().isCollapsed || $("dialog[open]") || $("main details[open]:not([data-key])") || $("main :active") ||
    document.activeElement?.matches("main form *, input, select, textarea") ||
    $$("main form :is(input, select, textarea)").some(changed);
}

function busy() {
  return document.hidden || refresh.paused || begun();
}

function replaceMain(fresh) {
  const main = $("main");
  const next = $("main", fresh);
  if (!main || !next) return;
  const focusKey = document.activeElement?.closest?.("[data-key]")?.dataset.key;
  const focusHref = document.activeElement?.getAttribute?.("href");
  const old = new Map($$(":scope > [data-key]", main).map((element) => [element.dataset.key, element]));
  const children = [...next.children].map((element) => {
    const same = old.get(element.dataset.key);
    return same && same.isEqualNode(element) ? same : document.importNode(element, true);
  });
  main.replaceChildren(...children);
  if (document.activeElement === document.body && focusKey) {
    const within = $(`[data-key="${CSS.escape(focusKey)}"]`, main);
    const target = within && (focusHref ? $(`a[href="${CSS.escape(focusHref)}"]`, within) : $("a, button", within));
    target?.focus({ preventScroll: true });
  }
}

async function load() {
  const headers = { "Carillon-Refresh": "true", ...(refresh.tag && { "If-None-Match": refresh.tag }) };
  const response = await fetch(location.href, { cache: "no-store", headers, signal: AbortSignal.timeout(refresh.patience) });
  if (response.status === 304) return;
  if (!response.ok) throw new Error(response.statusText);
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  if (busy()) return; // a person has begun something in the meantime
  if (response.redirected) return location.reload(); // the session has ended
  refresh.tag = response.headers.get("ETag") || "";
  replaceMain(fresh);
  if (!("refresh" in fresh.body.dataset)) delete document.body.dataset.refresh; // it does not change any more
}

async function turn() {
  if (refresh.loading || !("refresh" in document.body.dataset)) return;
  clearTimeout(refresh.timer);
  refresh.loading = true;
  if (!busy()) await load().then(() => { refresh.failures = 0; }, () => { refresh.failures++; });
  refresh.loading = false;
  follow();
  refresh.timer = setTimeout(turn, refresh.again ? 0 : Math.min(refresh.every * 2 ** refresh.failures, refresh.most));
  refresh.again = false;
  state();
}

// A page with a stream of its changes refreshes itself at each of them. It has the stream while it is in sight only, because
// a browser has few connections for all its tabs. Without the stream it refreshes itself as other pages do.
let stream = null;

function follow() {
  const { follow: from, refresh: refreshes } = document.body.dataset;
  if (!from || refreshes === undefined || document.hidden || refresh.paused) {
    stream?.close();
    stream = null;
  } else if (!stream || stream.readyState === EventSource.CLOSED) {
    stream = new EventSource(from);
    stream.onmessage = () => { refresh.again = refresh.loading; turn(); };
  }
}

function state() {
  document.body.toggleAttribute("data-stale", refresh.failures > 0);
  const button = $("#refresh");
  if (!button) return;
  const { resume, stale, waits, pause } = button.dataset;
  button.hidden = !("refresh" in document.body.dataset);
  button.textContent = refresh.paused ? resume : refresh.failures ? stale : begun() ? waits : pause;
  button.setAttribute("aria-pressed", String(refresh.paused));
}

function toggleRefresh() {
  refresh.paused = !refresh.paused;
  sessionStorage.setItem("refresh", refresh.paused ? "paused" : "");
  follow();
  state();
}

function startRefresh() {
  if (!("refresh" in document.body.dataset)) return;
  $("#refresh")?.addEventListener("click", toggleRefresh);
  refresh.timer = setTimeout(turn, refresh.every);
  document.addEventListener("visibilitychange", () => document.hidden ? follow() : turn());
  follow();
  state();
}

// Keys: / goes to the search, j and k through rows, Enter opens, r pauses the refresh, g and a letter goes to a page, ? helps.
let going = false;

function rows() {
  return $$("main tr[data-key]").filter((row) => $("a", row));
}

function move(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? (by > 0 ? 0 : all.length - 1) : at + by))];
  $("a", next).focus();
  next.scrollIntoView({ block: "nearest" });
}

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea, [contenteditable]")) return;
  const pressed = event.key;
  if (going) {
    going = false;
    const item = $(`[data-go="${CSS.escape(pressed)}"]`);
    if (item) { event.preventDefault(); item.click(); }
    return;
  }
  const does = {
    "/": () => ($("[data-search]") || $("main input[type=search]"))?.focus(),
    "?": () => $("#help")?.showModal(),
    "g": () => { going = true; setTimeout(() => { going = false; }, 1500); },
    "j": () => move(1),
    "k": () => move(-1),
    "r": () => { if ("refresh" in document.body.dataset) toggleRefresh(); },
  }[pressed];
  if (!does || $("dialog[open]")) return;
  event.preventDefault();
  does();
}

tellZone();
submitOnChange();
showNow();
startRefresh();
document.addEventListener("keydown", key);
