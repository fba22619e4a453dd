/**
 * <dumbwaiter-task type="video-export" key="order-42">: a button that becomes a progress bar, then a download.
 * What the server sends is put in as text, never as HTML.
 */

const MOST_STREAMED = 250;
const ASK = [2_000, 5_000];  // ms between questions without a stream
const ASK_HIDDEN = [15_000, 60_000];
const FIRST_WORD = 5_000;  // a proxy holds it up
const SILENCE = 40_000;  // it beats every 15 s
const WITHOUT_STREAM = 60_000;  // after two in vain
const HIDDEN_STREAM = 10_000;
const MOST_REMEMBERED = 500;

// ---- Texts ----

export const TEXTS = {
  en: {
    make: "Start", again: "Make again", cancel: "Cancel", download: "Download", choose: "Choose a file", uploading: "Uploading",
    queued: "Waiting for its turn", next: "Next in line", ahead: "{n} ahead of you", aheadMany: "More than {n} ahead of you",
    starts: "starts in about {time}", scheduled: "Starts at {when}", retrying: "Something went wrong. Next try in {time}",
    running: "Being made", cancelling: "Stopping", ready: "Ready", done: "Done",
    failed: "Something went wrong while it was being made", cancelled: "Cancelled", expired: "It was kept for a while and has been removed",
    gone: "There is no such task", attempt: "attempt {n} of {m}", left: "about {time} left", leftSoon: "a few seconds left", leftRange: "{low} to {high} left", soon: "a few seconds",
    until: "Kept until {when}", offline: "No connection. The work goes on", unreachable: "The server does not answer; still trying",
    signIn: "Please sign in again", nowhere: "There are no tasks at this address ({what})", notAsked: "It could not be asked for: {why}", tooMany: "Too much at once; try again in {time}",
  },
  zh: {
    make: "开始", again: "重新生成", cancel: "取消", download: "下载", choose: "选择文件", uploading: "正在上传",
    queued: "正在排队", next: "下一个就是您", ahead: "前面还有 {n} 个", aheadMany: "前面还有 {n} 个以上",
    starts: "预计{time}后开始", scheduled: "将于 {when} 开始", retrying: "出了点问题，{time}后重试",
    running: "正在生成", cancelling: "正在停止", ready: "已就绪", done: "已完成",
    failed: "生成时出了问题", cancelled: "已取消", expired: "文件已过保存期并被删除",
    gone: "没有这个任务", attempt: "第 {n} 次，共 {m} 次", left: "大约还需{time}", leftSoon: "还需几秒钟", leftRange: "还需{low}至{high}", soon: "几秒钟",
    until: "保存至 {when}", offline: "网络已断开，任务仍在进行", unreachable: "服务器没有响应，仍在尝试",
    signIn: "请重新登录", nowhere: "此地址没有任务接口（{what}）", notAsked: "未能提交：{why}", tooMany: "请求太多，请在{time}后再试",
  },
};

export function setTexts(language, texts) {
  TEXTS[language] = { ...TEXTS[language], ...texts };
  for (const element of living) element.draw();
}

const fill = (text, values) => text.replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all);
const sentence = (text) => text && text[0].toUpperCase() + text.slice(1);

function unit(language, number, unit, digits = 0) {
  const unitDisplay = unit === "byte" ? "long" : "short";
  return new Intl.NumberFormat(language, { style: "unit", unit, unitDisplay, maximumFractionDigits: digits }).format(number);
}

function size(bytes, language) {
  const power = Math.min(Math.floor(Math.log10(bytes || 1) / 3), 3);
  return unit(language, bytes / 1e3 ** power, ["byte", "kilobyte", "megabyte", "gigabyte"][power], power > 1 ? 1 : 0);
}

export function moment(time, language) {
  const date = new Date(time), today = new Date().toDateString() === date.toDateString();
  return new Intl.DateTimeFormat(language, { timeStyle: "short", ...(!today && { dateStyle: "medium" }) }).format(date);
}

// ---- Style ----

const style = new CSSStyleSheet();
style.replaceSync(`
:host {
  --_accent: var(--dumbwaiter-accent, light-dark(#a84a22, #e58a5d));
  --_on-accent: var(--dumbwaiter-on-accent, light-dark(#fff, #21130b));
  --_muted: var(--dumbwaiter-muted, light-dark(#6a5e51, #b3a797));
  --_line: var(--dumbwaiter-line, light-dark(#d9cebf, #4a4136));
  --_track: var(--dumbwaiter-track, light-dark(#f1e2d6, #3b2d22));
  --_good: var(--dumbwaiter-good, light-dark(#2f6b3f, #8cca98));
  --_bad: var(--dumbwaiter-bad, light-dark(#a3242b, #ff9d94));
  display: block;
  line-height: 1.5;
  container-type: inline-size;
}
:host([hidden]), [hidden], :is(p, span, a, ul):empty:not(.live), .facts:not(:has(> :not(:empty))) { display: none !important; }
* { box-sizing: border-box; }
p, ul { margin: 0; padding: 0; list-style: none; }
.root { display: flex; flex-direction: column; gap: var(--dumbwaiter-gap, .5rem); overflow-wrap: anywhere; }
.headline { font-weight: 600; }
[data-state=ready] .headline { color: var(--_good); }
[data-state=ready] .headline::before { content: "✓ "; content: "✓ " / ""; }
[data-state=retry] .headline, .problem { color: var(--_bad); }
[data-phase=cancelled] .headline { color: var(--_muted); }
.bar { border-radius: 1rem; background: var(--_track); overflow: hidden; }
.fill { height: .55rem; inline-size: max(.55rem, var(--done) * 1%); border-radius: inherit; background: var(--_accent); transition: inline-size .6s ease-out; }
.waiting .fill { inline-size: 30%; animation: wait 2.4s ease-in-out infinite alternate; }
@keyframes wait { to { margin-inline-start: 70%; } }
.facts { display: flex; align-items: start; gap: .9em; font-variant-numeric: tabular-nums; }
.facts, .message, .note, .trouble, .time { color: var(--_muted); font-size: .92em; }
.percent { color: var(--_accent); font-weight: 650; }
.left { margin-inline-start: auto; text-align: end; }
.percent, .left { flex: none; max-inline-size: 60%; }
.actions { display: flex; flex-wrap: wrap; gap: .6rem; }
.button {
  display: inline-grid; place-content: center; min-height: 2.75rem; padding: .5rem 1.1rem; border: 1px solid var(--_line);
  border-radius: var(--dumbwaiter-radius, .6rem); background: none; color: inherit; font: inherit; font-weight: 550; text-decoration: none; cursor: pointer;
}
.button.main { background: var(--_accent); border-color: var(--_accent); color: var(--_on-accent); }
.button:hover { border-color: var(--_accent); }
[aria-disabled=true] { opacity: .6; }
:focus-visible { outline: 3px solid var(--_accent); outline-offset: 2px; }
.file { color: var(--_accent); }
.live { position: absolute; clip-path: inset(50%); }
@media (prefers-reduced-motion) { .fill { transition: none; } .waiting .fill { animation: none; inline-size: 100%; opacity: .4; } }
@media (forced-colors: active) { .bar { border: 1px solid; } .fill { background: Highlight; } .button { border-color: ButtonText; } }
`);

// ---- One stream for all ----

const living = new Set();
const lines = new Map();
const remembered = new Map();  // identity -> view
let pageLeft = false;

class Line {
  static of(element) {
    const { asker } = element, line = lines.get(asker) ?? new Line();
    lines.set(asker, line);
    line.owner = element;  // its headers are asked for at each request
    line.base = new URL(element.endpoint, document.baseURI).href.replace(/\/+$/, "");
    return line;
  }

  followed = new Map();  // task id -> the elements that show it
  tags = new Map();  // task id -> ETag
  covered = [];  // what the stream tells of
  looks = 0;  // questions under way
  skew = 0;  // the server's clock minus ours, ms
  misses = 0;
  streamAfter = 0;

  async fetch(path, { headers, ...options } = {}) {
    const { owner } = this;
    const all = { Accept: "application/json", ...owner.headers, ...(options.method && owner.token), ...headers };
    const answer = await fetch((path[0] === "h" ? "" : this.base) + path, { cache: "no-store", credentials: owner.credentials, headers: all, ...options });
    this.skew = (Date.parse(answer.headers.get("Date")) || Date.now()) - Date.now();
    return answer;
  }

  /** Undefined if nothing is new; errors have a `status`. */
  async json(path, options, kind = "json") {
    const cut = (error) => { throw Object.assign(error, { status: 0 }); };
    const answer = await this.fetch(path, options).catch(cut), { status, ok } = answer;
    if (status === 304) return undefined;
    const body = await answer[ok ? kind : "json"]().catch((error) => !ok ? {} : error instanceof SyntaxError ? null : cut(error));
    // our own refusals have a name
    const nowhere = !body || (/40[45]/.test(status) && !body.type?.startsWith("urn:dumb"));
    if (nowhere) this.what = `${options?.method ?? "GET"} ${answer.url}: ${status}`;
    if (nowhere || !ok) throw Object.assign(new Error(body?.detail || status), { status, body, nowhere, wait: answer.headers.get("Retry-After") });
    this.tags.set(body.task_id, answer.headers.get("ETag"));
    return body;
  }

  async ask(path) {
    this.looks += 1;
    try { return await this.json(path); } finally { this.looks -= 1; }
  }

  async look(id) {
    const tag = this.tags.get(id);
    try {
      const view = await this.json(`/${id}`, { headers: tag && { "If-None-Match": tag } });
      if (view) this.tell(id, view); else for (const element of this.followed.get(id) ?? []) element.worry("");
      return Boolean(view);
    } catch (error) {
      if (error.status !== 404) throw error;
      this.tell(id, null);
      return true;
    }
  }

  tell(id, view) {
    const elements = [...(this.followed.get(id) ?? [])];
    if (!view || view.finished_at) { this.followed.delete(id); this.tags.delete(id); }
    for (const element of elements) element.receive(view);
    if (!this.followed.size) this.wake();
  }

  trouble(kind) { for (const elements of this.followed.values()) for (const element of elements) element.worry(kind); }

  follow(id, element) {
    const elements = this.followed.get(id) ?? new Set();
    this.followed.set(id, elements.add(element));
    if (!this.covered.includes(id) || !this.running) this.wake();
  }

  leave(id, element) {
    const elements = this.followed.get(id);
    elements?.delete(element);
    if (elements?.size === 0) this.followed.delete(id);
    if (!this.followed.size) this.wake();
  }

  wake(seen) {
    if (seen) { this.streamAfter = 0; this.hurry?.(); }
    if (!this.running && this.followed.size) this.run();
    else this.waking ??= setTimeout(() => this.reopen(Date.now() + 2_000), 100);
  }

  reopen(latest) {
    this.waking = undefined;
    if (this.looks && Date.now() < latest) { this.waking = setTimeout(() => this.reopen(latest), 100); return; }
    const wanted = this.wanted();
    if (wanted.length && wanted.every((id) => this.covered.includes(id))) return;
    this.changed = true;
    this.stop?.abort();
    this.hurry?.();
  }

  wanted() { return [...this.followed.keys()].slice(0, MOST_STREAMED); }

  async run() {
    this.running = true;
    await this.pause(20);
    for (let wait = 0, latest = Date.now() + 2_000; this.followed.size && !pageLeft;) {
      while (this.looks && Date.now() < latest) await this.pause(50);
      this.changed = false;
      let heard = false;
      if (!document.hidden && navigator.onLine && Date.now() >= this.streamAfter) {
        heard = await this.stream();
        if (pageLeft || !this.followed.size) break;
        if (this.changed) continue;
        this.misses = heard ? 0 : this.misses + 1;
        if (this.misses > 1) this.streamAfter = Date.now() + WITHOUT_STREAM;
      }
      const news = await this.round();
      const [first, longest] = document.hidden ? ASK_HIDDEN : ASK;
      wait = news || heard ? first : Math.min(Math.max(wait * 1.3, first), longest);
      if (this.followed.size && !pageLeft && !this.changed) await this.pause(wait * (0.8 + 0.4 * Math.random()));
    }
    this.running = false;
    this.covered = [];
    if (this.followed.size && !pageLeft) this.run();
  }

  pause(ms) {
    return new Promise((done) => { this.hurry = done; setTimeout(done, ms); });
  }

  /** Whether there was news. */
  async round() {
    let news = false;
    try {
      for (const id of [...this.followed.keys()]) news = (await this.look(id)) || news;
    } catch (error) {
      this.trouble(kindOf(error));
    }
    return news;
  }

  /** Whether any events came. */
  async stream() {
    const ids = this.wanted(), stop = this.stop = new AbortController();
    this.covered = ids;
    let heard = false, silence = setTimeout(() => stop.abort(), FIRST_WORD);
    try {
      const answer = await this.fetch(`/events?ids=${ids}`, { headers: { Accept: "text/event-stream" }, signal: stop.signal });
      if (!answer.ok || !answer.headers.get("Content-Type")?.startsWith("text/event-stream")) return false;
      for await (const { event, data } of eventsOf(answer.body)) {
        heard = true;
        clearTimeout(silence);
        silence = setTimeout(() => stop.abort(), SILENCE);
        if (!data) continue;
        const view = JSON.parse(data);
        this.tell(view.task_id, event === "gone" ? null : view);
      }
    } catch { /* cut off, or stopped by us */ } finally {
      clearTimeout(silence);
      stop.abort();
    }
    return heard;
  }
}

const kindOf = ({ status, nowhere }) => nowhere ? "nowhere" : status === 401 || status === 403 ? "signIn" : navigator.onLine ? "unreachable" : "offline";

/** The events of a stream, and its comments. */
async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (text + value).split(/\r?\n\r?\n/);
    text = blocks.pop();
    for (const block of blocks) {
      const event = { data: "" };
      for (const line of block.split(/\r?\n/)) {
        const [, field, said] = /^([^:]*):? ?(.*)$/.exec(line);
        event[field] = field === "data" ? event.data + said : said;
      }
      yield event;
    }
  }
}

const each = (what) => { for (const line of lines.values()) what(line); };
const stopAll = () => each((line) => { line.stop?.abort(); line.hurry?.(); });

function lookAgain() {
  if (document.hidden) { setTimeout(() => document.hidden && stopAll(), HIDDEN_STREAM); return; }
  each((line) => line.wake(true));
  for (const element of living) element.awake();
}

document.addEventListener("visibilitychange", lookAgain);
addEventListener("online", lookAgain);
addEventListener("offline", () => { stopAll(); each((line) => line.trouble("offline")); });
addEventListener("pagehide", () => { pageLeft = true; stopAll(); });
addEventListener("pageshow", () => { if (pageLeft) { pageLeft = false; lookAgain(); } });
setInterval(() => { if (!document.hidden) for (const element of living) element.tick?.(); }, 1_000);

const channel = new BroadcastChannel("dumbwaiter");
channel.onmessage = ({ data }) => { for (const element of living) element.hear(data); };

function remember(identity, view) {
  remembered.set(identity, view);
  if (remembered.size > MOST_REMEMBERED) remembered.delete(remembered.keys().next().value);
}

// ---- What elements share ----

function objectIn(text) {
  const value = JSON.parse(text || "{}");
  if (value?.constructor !== Object) throw new TypeError(text);
  return value;
}

export class Shared extends HTMLElement {
  static plain = { endpoint: "/tasks", credentials: "same-origin", "csrf-token": "", "csrf-header": "X-CSRF-Token", label: "", "aria-label": "" };
  static objects = ["headers", "texts"];
  static get observedAttributes() { return [...Object.keys(this.plain), ...this.objects, "lang"]; }

  static define(name) {
    for (const [attribute, otherwise] of Object.entries(this.plain)) {
      this.property(attribute.replace(/-(\w)/g, (_, letter) => letter.toUpperCase()), function () {
        return this.getAttribute(attribute) ?? otherwise;
      }, function (value) {
        if (value == null) this.removeAttribute(attribute); else this.setAttribute(attribute, value);
      });
    }
    for (const name of this.objects) {
      this.property(name, function () {
        const set = this.given[name];
        if (set) return typeof set === "function" ? set() : set;
        try { return objectIn(this.getAttribute(name)); } catch { return {}; }
      }, function (value) {
        if (typeof value === "string") { this.setAttribute(name, value); return; }
        this.given[name] = value;
        this.attributeChangedCallback();
      });
    }
    if (!customElements.get(name)) customElements.define(name, this);
  }

  static property(name, get, set) { Object.defineProperty(this.prototype, name, { get, set, enumerable: true }); }

  given = {};
  flaw = "";  // of its attributes; then nothing is asked

  sound(flaw = "") {
    for (const name of this.constructor.objects) {
      try { if (!this.given[name]) objectIn(this.getAttribute(name)); } catch (error) { flaw = `the attribute ${name} is no JSON object: ${error.message}`; }
    }
    if (flaw && flaw !== this.flaw) console.error(`<${this.localName}>: ${flaw}`, this);
    this.flaw = flaw;
    return !flaw;
  }

  constructor() {
    super();
    this.attachShadow({ mode: "open" }).adoptedStyleSheets = [style];
  }

  connectedCallback() {
    // set before, it hides the accessor
    for (const name of [...Object.keys(this.constructor.prototype), "task"]) {
      if (Object.hasOwn(this, name)) { const value = this[name]; delete this[name]; this[name] = value; }
    }
    living.add(this);
    this.attributeChangedCallback();
  }

  disconnectedCallback() {
    living.delete(this);
    queueMicrotask(() => this.isConnected || this.rest());  // moved elements are back by then
  }

  attributeChangedCallback() {
    this.due ??= Promise.resolve().then(() => { this.due = undefined; if (this.isConnected) this.start(); });
  }

  get asker() { return JSON.stringify([this.endpoint, this.credentials, this.headers]); }
  get called() { return this.ariaLabel || this.label; }
  get token() { return this.csrfToken && { [this.csrfHeader]: this.csrfToken }; }

  get language() {
    for (let node = this; node; node = node.getRootNode().host) {
      const { lang } = node.closest("[lang]") ?? {};
      if (lang) return lang;
    }
    return navigator.language;
  }

  get words() {
    const { language } = this;
    return { ...TEXTS.en, ...TEXTS[language.slice(0, 2)], ...TEXTS[language], ...this.texts };
  }

  emit(name, detail, cancelable = false) {
    return this.dispatchEvent(new CustomEvent(`dumbwaiter-${name}`, { detail, bubbles: true, composed: true, cancelable }));
  }
}

export function build(tag, part, attributes = {}, ...children) {
  const element = Object.assign(document.createElement(tag), { className: part });
  element.setAttribute("part", part);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Unchanged, it is not read out again. */
export function say(element, text) { if (element.textContent !== text) element.textContent = text; }

export { Line, fill, kindOf };

// ---- <dumbwaiter-task> ----

export class DumbwaiterTask extends Shared {
  static plain = { ...super.plain, type: "", key: "", "business-key": "", "task-id": "", upload: "", uploads: "", accept: "" };
  static objects = [...super.objects, "arguments"];

  view = null;
  known = false;  // whether the server has said how it stands
  busy = false;
  sent = null;  // 0…1 of an upload
  problem = "";  // why a press came to nothing
  worries = "";  // why it is not known how it stands
  turn = 0;
  checkedAt = 0;
  file = null;

  constructor() {
    super();
    const parts = this.parts = {}, auto = { dir: "auto" }, button = { type: "button" };
    const part = (name, tag, attributes, ...children) => parts[name.split(" ")[0]] = build(tag, name, attributes, ...children);
    this.root = build("div", "root", { role: "group" },
      part("headline", "p", auto),
      part("bar", "div", { role: "progressbar", "aria-valuemin": 0, "aria-valuemax": 100 }, part("fill", "div")),
      build("p", "facts", {}, part("percent", "span"), part("step", "span", auto), part("left", "span")),
      part("message", "p", auto), part("trouble", "p"), part("problem", "p", auto),
      build("div", "actions", {}, part("download button main", "a"), part("make button", "button", button), part("cancel button", "button", button)),
      part("files", "ul"), part("note", "p"), part("live", "p", { role: "status" }), part("picker", "input", { type: "file", hidden: "" }));
    this.shadowRoot.append(this.root);
    parts.make.onclick = parts.cancel.onclick = (event) => this.press(event.currentTarget);
    this.root.onkeydown = (event) => { if (event.repeat && event.key === "Enter") event.preventDefault(); };
    parts.download.onclick = parts.files.onclick = (event) => this.fetched(event);
    parts.picker.onchange = () => { this.make(parts.picker.files[0]); parts.picker.value = ""; };
  }

  get state() { return this.known ? this.view?.display ?? "none" : ""; }

  get task() { return this.view; }
  set task(view) {
    if (view) remember(this.identityOf(view.task_id), view);
    if (view && this.taskId === view.task_id && this.line) this.receive(view);
    else this.taskId = view?.task_id;
  }

  get name() { return this.businessKey || this.key; }
  identityOf(id) { return JSON.stringify([this.asker, id || [this.type, this.name]]); }

  // ---- following ----

  start() {
    const identity = this.identityOf(this.taskId), line = Line.of(this);
    if (identity !== this.identity || line !== this.line) {
      this.rest();
      const view = remembered.get(identity) ?? null;
      Object.assign(this, { identity, line, view, known: remembered.has(identity), problem: "", worries: "", checkedAt: 0, phase: "" });
    }
    const sound = this.sound(this.type || this.taskId || this.view ? "" : "it has neither a type nor a task-id");
    this.draw();
    if (!sound) return;
    const id = this.view ? !this.view.finished_at && this.view.task_id : !this.known && this.taskId;
    if (id) line.follow(id, this);
    else if (Date.now() - this.checkedAt > 5_000) this.refresh();
  }

  rest() {
    clearTimeout(this.timer);
    for (const id of [this.view?.task_id, this.taskId]) if (id) this.line?.leave(id, this);
    this.turn += 1;
  }

  async refresh() {
    clearTimeout(this.timer);
    if (this.flaw) return;
    this.checkedAt = Date.now();
    const turn = ++this.turn, { line, type, name } = this, id = this.taskId && (this.view?.task_id ?? this.taskId);
    let view = null;
    try {
      if (id) view = await line.ask(`/${id}`);
      else if (type && name) view = (await line.ask(`?${new URLSearchParams({ task_type: type, business_key: name })}`)).task;
      else view = this.view;
    } catch (error) {
      if (error.status !== 404 || (error.nowhere && !id)) {
        if (turn !== this.turn) return;
        this.worry(kindOf(error));
        this.timer = setTimeout(() => this.refresh(), this.wait = Math.min((this.wait || 1_000) * 2, 15_000));
        return;
      }
    }
    if (turn === this.turn) this.receive(view);
  }

  receive(view) {
    const now = this.view, { line } = this;
    // answers overtake each other
    if (view && now?.task_id === view.task_id && (view.attempt < now.attempt || (now.finished_at && !view.finished_at))) return;
    if (now && now.task_id !== view?.task_id) line.leave(now.task_id, this);
    this.turn += 1;
    clearTimeout(this.timer);
    Object.assign(this, { view, known: true, worries: "", wait: 0, checkedAt: Date.now() });
    // who asks may have changed
    if (this.identity === this.identityOf(this.taskId)) remember(this.identity, view);
    if (view) line[view.finished_at || !this.isConnected ? "leave" : "follow"](view.task_id, this);
    const ends = (view?.files ?? []).map((file) => Date.parse(file.expires_at)).filter(Boolean);
    const wait = Math.min(...ends) - Date.now() - line.skew + 300;
    if (wait < 2 ** 31) this.timer = setTimeout(() => this.refresh(), Math.max(wait, 1_000));
    this.draw();
    this.emit("task", { task: view });
  }

  worry(kind) { if (this.worries !== kind) { this.worries = kind; this.draw(); } }
  awake() { if (this.line && this.state !== "working" && (this.worries || Date.now() - this.checkedAt > 15_000)) this.refresh(); }
  tick() { if (this.state === "working") this.draw(); }
  hear({ base, type, key }) { if (key && key === this.name && type === this.type && base === this.line?.base) this.refresh(); }

  // ---- pressing ----

  get needsFile() { return this.upload && !(this.upload in this.arguments); }

  press(button) {
    if (button.ariaDisabled === "true") return;
    if (button === this.parts.cancel) this.cancel(); else if (this.needsFile && !this.file) this.parts.picker.click(); else this.make();
  }

  async make(file = this.file) {
    if (this.state === "working" || this.flaw) return null;
    const values = { ...this.arguments }, { line, type, name } = this;
    if (!this.emit("make", { arguments: values, file }, true)) return null;
    return this.move(async () => {
      if (file) values[this.upload] = { upload: await this.send(file) };
      const view = await line.json(...this.request(values));
      this.pressed = undefined;
      const word = { base: line.base, type, key: name };
      for (const element of living) if (element !== this) element.hear(word);
      channel.postMessage(word);
      return view;
    });
  }

  async cancel() {
    return this.state === "working" ? this.move(() => this.line.json(`/${this.view.task_id}/cancel`, { method: "POST" })) : null;
  }

  /** A refusal that carries the task is news too. */
  async move(ask) {
    if (this.busy || !this.line) return null;
    const { line } = this;
    Object.assign(this, { busy: true, problem: "" });
    this.draw();
    let view = null;
    try {
      view = await ask();
    } catch (error) {
      view = error.body?.task ?? null;
      if (!view) this.refuse(error);
    }
    Object.assign(this, { busy: false, sent: null });
    if (view && line === this.line) this.receive(view); else this.draw();
    return view;
  }

  request(values) {
    const method = "POST", body = JSON.stringify(values), { type, name } = this;
    if (!type) return [`/${this.view.task_id}/retry?force=true`, { method }];
    // sent twice, it is one task
    if (this.pressed?.body !== body) this.pressed = { body, key: crypto.getRandomValues(new Uint32Array(4)).join("-") };
    const query = name ? `?${new URLSearchParams({ business_key: name })}` : "";
    return [`/${encodeURIComponent(type)}${query}`, { method, body, headers: { "Content-Type": "application/json", "Idempotency-Key": this.pressed.key } }];
  }

  /** Only XMLHttpRequest tells how far it is. */
  send(file) {
    const address = new URL(this.uploads || this.line.base.replace(/[^/]*$/, "uploads"), document.baseURI), request = new XMLHttpRequest();
    address.searchParams.set("filename", [...file.name.replace(/[\\/\p{Cc}]/gu, "_")].slice(-50).join(""));
    return new Promise((resolve, reject) => {
      request.open("PUT", address);
      request.responseType = "json";
      request.withCredentials = this.credentials === "include";
      const all = { "Content-Type": file.type || "application/octet-stream", ...this.headers, ...this.token };
      for (const [name, value] of Object.entries(all)) request.setRequestHeader(name, value);
      request.upload.onprogress = ({ loaded, total }) => { this.sent = total ? loaded / total : 0; this.draw(); };
      request.onloadend = () => {
        const { status, response: body } = request;
        if (status >= 200 && status < 300) resolve(body.id); else reject(Object.assign(new Error(body?.detail || status), { status, body }));
      };
      this.sent = 0;
      request.send(file);
    });
  }

  refuse(error, said) {
    const words = this.words, { status, body, wait, nowhere } = error;
    this.problem = said || (status === 401 ? words.signIn
      : status === 429 ? fill(words.tooMany, { time: this.time(wait || 60) })
      : fill(words.notAsked, { why: nowhere ? fill(words.nowhere, this.line) : status ? error.message : words.unreachable }));
    this.emit("error", { status, message: this.problem, problem: body });
    this.announce(this.problem);
  }

  async fetched(event) {
    const link = event.target.closest("a"), plain = !Object.keys(this.headers).length, fresh = Date.now() - this.checkedAt < 20_000;
    if (!link || (plain && fresh)) return;
    event.preventDefault();
    if (!fresh) await this.refresh();
    if (this.state !== "ready") return;
    if (plain) { link.click(); return; }
    this.problem = "";
    try {
      const href = URL.createObjectURL(await this.line.json(link.href, { headers: { Accept: "*/*" } }, "blob"));
      build("a", "", { href, download: link.download }).click();
      setTimeout(() => URL.revokeObjectURL(href), 60_000);
    } catch (error) {
      const gone = /404|410/.test(error.status);
      this.refuse(error, gone && this.words.expired);
      if (gone) await this.refresh();
      if (this.state !== "ready") this.problem = "";
    }
    this.draw();
  }

  // ---- showing ----

  draw() {
    if (!this.line) return;
    const { parts, root, view, words, language, line } = this, focused = this.shadowRoot.activeElement;
    const sending = this.sent !== null, state = sending ? "working" : this.state, working = state === "working";
    const phase = sending || !view ? "" : view.phase, running = working && phase === "running";
    const percent = sending ? Math.floor(this.sent * 100) : running ? Math.floor(view.progress_percentage) : null;
    const shown = percent === null ? "" : new Intl.NumberFormat(language, { style: "percent" }).format(percent / 100);
    const headline = sending ? words.uploading : this.headline(words, language);
    const step = running ? this.step(words) : "", left = running ? this.remaining(words) : phase === "queued" && this.until(view.expected_start_at) > 5 ? fill(words.starts, { time: this.time(this.until(view.expected_start_at)) }) : "";
    const files = state === "ready" ? view.files : [], [file] = files;
    const texts = {
      headline, step, left, percent: shown, message: (running && view.message) || "", trouble: this.worries && fill(words[this.worries], line), problem: this.flaw ? fill(words.notAsked, { why: this.flaw }) : this.problem,
      make: view && !sending ? words.again : this.label || (this.needsFile && !this.file ? words.choose : words.make), cancel: words.cancel,
      download: file ? `${words.download} (${size(file.size, language)})` : "", note: file?.expires_at ? fill(words.until, { when: moment(file.expires_at, language) }) : "",
    };
    for (const [name, text] of Object.entries(texts)) say(parts[name], text);
    Object.assign(root.dataset, { state, phase });
    root.ariaLabel = this.called || this.type || view?.task_type || "";

    parts.bar.hidden = !working;
    parts.bar.classList.toggle("waiting", percent === null);
    parts.fill.style.setProperty("--done", percent ?? 0);
    Object.assign(parts.bar, { ariaLabel: this.called || headline, ariaValueNow: percent, ariaValueText: [shown, step, left].filter(Boolean).join(", ") || headline });

    parts.download.hidden = !file;
    if (file) this.link(parts.download, file);
    parts.files.replaceChildren(...files.slice(1).map((other) => build("li", "entry", {}, this.link(build("a", "file", { dir: "auto" }, `${other.name} (${size(other.size, language)})`), other))));
    this.show(parts.make, !working && (this.type || view), !this.known || this.flaw);
    const quiet = state === "ready" || (phase === "failed" && view.attempt < view.max_attempts);
    parts.make.className = `make button ${view ? "again" : ""} ${quiet ? "" : "main"}`;
    parts.make.setAttribute("part", parts.make.className);
    parts.picker.accept = this.accept;
    this.show(parts.cancel, working && !sending && phase !== "cancelling");
    if (focused?.hidden) this.focus();
    if (this.known) this.tellOf(headline, percent, shown);
  }

  // a second press was not meant for it
  show(button, shown, off) {
    if (shown && button.hidden) {
      clearTimeout(button.fresh);
      button.fresh = setTimeout(() => { button.fresh = 0; this.draw(); }, 500);
    }
    button.hidden = !shown;
    button.ariaDisabled = !!(this.busy || off || button.fresh);
  }

  headline(words, language) {
    const { view, state } = this;
    if (!view) return this.known && this.taskId && !this.type ? words.gone : "";
    if (state === "ready") return view.files.length ? words.ready : words.done;
    const { phase, queue_position: place } = view;
    if (phase === "success") return words.expired;
    if (phase === "failed") return view.user_message || words.failed;
    if (phase === "scheduled") return fill(words.scheduled, { when: moment(view.run_at, language) });
    if (phase === "retrying") return fill(words.retrying, { time: this.time(this.until(view.retry_at)) }) + this.attempts(words, view.attempt);
    if (phase !== "queued" || !place) return words[phase];
    const n = new Intl.NumberFormat(language).format(place - 1);
    return fill(words[view.queue_position_is_lower_bound ? "aheadMany" : place > 1 ? "ahead" : "next"], { n });
  }

  attempts(words, n) { return n > 1 && n <= this.view.max_attempts ? ` (${fill(words.attempt, { n, m: this.view.max_attempts })})` : ""; }

  step(words) {
    const { steps = [], current_step: name, attempt } = this.view, at = steps.findIndex((step) => step.state === "current");
    return (at >= 0 && steps.length > 1 ? `${at + 1}/${steps.length} ` : "") + sentence(name ?? "") + this.attempts(words, attempt);
  }

  remaining(words) {
    const { estimated_remaining_seconds: seconds, estimated_remaining_range: range } = this.view;
    if (seconds == null) return "";
    const now = (bound) => this.time(bound - (Date.now() - this.checkedAt) / 1_000), [low, high] = (range ?? [seconds, seconds]).map(now);
    return low === high || low === words.soon ? now(seconds) === words.soon ? words.leftSoon : fill(words.left, { time: now(seconds) }) : fill(words.leftRange, { low, high });
  }

  until(time) { return (Date.parse(time) - Date.now() - this.line.skew) / 1_000; }

  time(seconds) {
    const { language } = this;
    if (seconds < 5) return this.words.soon;
    if (seconds < 90) return unit(language, Math.ceil(seconds / 5) * 5, "second");
    return seconds < 5400 ? unit(language, Math.round(seconds / 60), "minute") : unit(language, seconds / 3600, "hour", 1);
  }

  link(element, file) {
    return Object.assign(element, { href: new URL(file.url, this.line.base), download: file.name });
  }

  tellOf(headline, percent, shown) {
    const { state, view } = this, phase = `${view?.task_id} ${view?.phase} ${state}`, quarter = Math.floor(percent / 25), before = this.shown;
    if (phase !== this.phase) {
      if (this.phase) this.announce(headline);
      this.quarter = 0;
    } else if (quarter > this.quarter && Date.now() - this.announcedAt > 20_000) this.announce(shown);
    this.quarter = Math.max(quarter, this.quarter);
    this.phase = phase;
    if (state === before) return;
    this.shown = state;
    this.emit("state", { state, before, task: view });
  }

  announce(text) {
    this.announcedAt = Date.now();
    say(this.parts.live, this.called && text ? `${this.called}: ${text}` : text);
  }

  focus(options) {
    const { download, cancel, make } = this.parts;
    [download, cancel, make].find((element) => !element.hidden)?.focus(options);
  }
}

DumbwaiterTask.define("dumbwaiter-task");
