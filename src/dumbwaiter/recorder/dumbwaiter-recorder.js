/**
 * Records what a visitor sees and does, and uploads it in parts while it happens:
 *
 *     const recording = await DumbwaiterRecorder.start({ prefix: "/jobs" });
 *     const upload = await recording.stop();  // {upload: "<id>"}, as a task takes it
 *
 * The recording is one rrweb event a line. What is typed is masked unless asked otherwise.
 */

/**
 * @typedef {object} Target  where the parts go: what `POST /uploads` answered, as your server may have told the page
 * @property {string} id
 * @property {string} token
 * @property {{self: string, complete: string}} links
 * @property {number} [max_size]  bytes
 *
 * @typedef {object} Options
 * @property {string} [prefix]  of the task routes: "" if they are at /tasks, "https://tasks.example" if they are elsewhere
 * @property {Record<string, string> | (() => Record<string, string>)} [headers]  sent with every request
 * @property {RequestCredentials} [credentials]  as fetch takes it; "same-origin"
 * @property {Target} [upload]  an upload that your server announced; otherwise one is announced
 * @property {string} [filename]  "recording.jsonl"
 * @property {boolean} [acrossPages]  go on with what the page before this one recorded in the same tab; false
 * @property {boolean} [maskInputs]  true; some are masked in any case: see `secret`
 * @property {string} [mask]  a CSS selector: texts and inputs in there are masked, as in what has the attribute `data-mask`
 * @property {string} [block]  a CSS selector: nothing in there is recorded, only its size, as of what has the attribute `data-block`
 * @property {string[]} [pictureOrigins]  whose pictures are recorded besides this site's, such as "https://pictures.example"
 * @property {number} [every]  milliseconds after which a part goes off, however small; 5000
 * @property {number} [maxBytes]  where a recording ends; 100 MiB, and never more than the server takes
 * @property {number} [maxWaiting]  bytes that may wait for the network before a recording ends; 16 MiB
 * @property {(news: News) => void} [onState]  called when `state` or its reason changes
 * @property {object} [rrweb]  further options of rrweb's `record`
 *
 * @typedef {object} News
 * @property {"recording" | "retrying" | "ended"} state
 * @property {"stopped" | "limit" | "behind" | "refused" | "failed"} [reason]  why it ended
 * @property {number} [status]  of the server's answer; 0 if there was none
 * @property {string} [message]  for whoever looks after the page
 */

// Browsers let 64 KiB outlive a page: one part that is under way, and the last.
const PART = 30 * 1024;
const OUTLIVES = 2 * PART;
const MOST_PARTS = 10_000;
const LONGEST_PAUSE = 30_000;
const LONGEST_PICTURE = 1024 * 1024;  // characters as data; and all together, each as often as it is shown:
const LONGEST_PICTURES = 16 * 1024 * 1024;
const PICTURE_WAIT = 4_000;
const KEPT = "dumbwaiter-recorder";

// ---- Parts ----

const utf8 = new TextEncoder();

const news = ({ status, told }) => ({ status, message: told.detail || `The server answered ${status}.` });
const problem = (answer) => Object.assign(new Error(news(answer).message), { status: answer.status, problem: answer.told });

/** Whether the same may be sent again. */
const passing = ({ status, told }) => !status || [408, 425, 429].includes(status) || status >= 500 || told.type === "urn:dumbwaiter:broken-off";

/** Lines in, parts out: in order, one at a time. A part that arrives twice is still one, since its number counts. */
class Parts {
  waiting = [];  // {number, text, bytes}; the first may be under way
  lines = [];  // of the part that is not full yet
  bytes = 0;  // of these lines
  total = 0;  // bytes of all there were
  sent = 0;  // bytes that have arrived
  arrived = 0;
  next = 1;
  target = null;
  refusal = null;

  constructor(options, tell) {
    Object.assign(this, { options, tell, limit: options.maxBytes });
    if (options.upload) this.aim(options.upload, new URL(options.prefix, document.baseURI));
  }

  aim({ id, token, links, max_size }, base) {
    const [self, complete] = [links.self, links.complete].map((link) => new URL(link, base).href);
    this.target = { id, token, links: { self, complete }, max_size };
    this.limit = Math.min(this.limit, max_size ?? Infinity);
  }

  /** Why it does not fit in, if it does not. */
  add(line) {
    const bytes = utf8.encode(line).length + 1;
    if (this.total + bytes > this.limit || this.next >= MOST_PARTS) return "limit";
    if (this.total - this.sent + bytes > this.options.maxWaiting) return "behind";
    if (this.bytes + bytes > PART) this.seal();
    this.lines.push(line);
    this.bytes += bytes;
    this.total += bytes;
    if (this.bytes >= PART) this.seal();
    else this.timer ??= setTimeout(() => this.seal(), this.options.every);
  }

  seal() {
    clearTimeout(this.timer);
    const { lines, bytes } = this;
    if (lines.length && !this.refusal) this.waiting.push({ number: this.next++, text: `${lines.join("\n")}\n`, bytes });
    Object.assign(this, { lines: [], bytes: 0, timer: undefined });
    this.run();
  }

  get idle() { return this.refusal || (this.target && !this.waiting.length); }

  run() {
    if (!this.running && !this.idle) this.running = this.work();
    return this.running;
  }

  async work() {
    for (let tries = 0; !this.idle;) {
      const part = this.target && this.waiting[0];
      // other scripts may have used up what outlives the page, and would have it refused
      this.outliving = part && !tries && part.bytes <= PART ? part : null;
      const answer = await (part ? this.put(part) : this.announce());
      if (answer.ok) {
        tries = 0;
        if (part && this.waiting.includes(part)) {
          this.waiting = this.waiting.filter((one) => one !== part);
          this.sent += part.bytes;
          this.arrived += 1;
        }
        this.tell({ state: "recording" });
      } else if (!passing(answer)) {
        Object.assign(this, { refusal: problem(answer), waiting: [] });
        this.tell({ state: "ended", reason: answer.status === 413 ? "limit" : "refused", ...news(answer) });
      }
      this.tried?.();
      if (!answer.ok && !this.refusal) await this.pause(answer, tries++);
    }
    this.running = undefined;
  }

  async announce() {
    const { prefix, filename } = this.options, body = JSON.stringify({ filename, content_type: "application/x-ndjson" });
    const answer = await this.ask(`${prefix.replace(/\/$/, "")}/uploads`, { method: "POST", body, type: "application/json" });
    if (answer.ok) this.aim(answer.told, answer.url);
    return answer;
  }

  put(part) {
    const { number, text: body, bytes } = part;
    return this.ask(`${this.target.links.self}/${number}`, { method: "PUT", body, type: "application/x-ndjson", bytes, keepalive: part === this.outliving });
  }

  async complete() {
    for (let tries = 0; ; tries += 1) {
      const answer = await this.ask(this.target.links.complete, { method: "POST" });
      if (answer.ok) return { upload: this.target.id };
      // 409: a part that came twice may have taken its own place meanwhile
      if (!passing(answer) && (answer.status !== 409 || tries > 2)) throw problem(answer);
      await this.pause(answer, tries);
    }
  }

  async ask(url, { type, bytes = 0, ...request }) {
    let status = 0;
    try {
      const { headers, credentials } = this.options;
      const answer = await fetch(url, {
        ...request, credentials, cache: "no-store", signal: AbortSignal.timeout(30_000 + bytes / 2),
        headers: { Accept: "application/json", ...(headers?.call ? headers() : headers), ...(type && { "Content-Type": type }), ...(this.target && { "Upload-Token": this.target.token }) },
      });
      status = answer.status;
      const told = answer.ok ? await answer.json() : await answer.json().catch(() => ({}));
      return { ok: answer.ok, status, told, url: answer.url, wait: answer.headers.get("Retry-After") * 1_000 };
    } catch (error) {
      if (error instanceof SyntaxError) return { status, told: { detail: `There are no uploads at ${url}: the answer is no JSON.` } };
      return { status: 0, told: { detail: String(error) } };
    }
  }

  pause(answer, tries) {
    this.tell({ state: "retrying", ...news(answer) });
    const ms = answer.wait || Math.min(500 * 2 ** tries, LONGEST_PAUSE) * (0.5 + Math.random() / 2);
    return new Promise((done) => { this.hurry = done; setTimeout(done, ms); });
  }

  /** The page goes: as much as may outlive it is sent at once, without a gap. */
  leave() {
    this.seal();
    let room = OUTLIVES;
    for (const part of this.target ? this.waiting : []) {
      if ((room -= part.bytes) < 0) return;
      if (part === this.outliving) continue;
      this.outliving = part;
      this.put(part);
    }
  }

  /** For the next page, which sends again whatever is not known to have arrived. */
  keep() {
    const { target, next, total, sent, arrived, waiting } = this;
    try {
      sessionStorage.setItem(KEPT, JSON.stringify({ target, next, total, sent, arrived, waiting }));
    } catch { /* too much: the next page begins anew */ }
  }

  goOn() {
    const { target, ...kept } = JSON.parse(sessionStorage.getItem(KEPT)) ?? {};
    sessionStorage.removeItem(KEPT);
    Object.assign(this, kept);
    if (target) this.aim(target);
  }
}

// ---- What a page would ask for when it is shown again ----

const MARK = "dumbwaiter-picture:";
// In JSON: url(\"https://…, or an attribute that `clean` has marked.
const PICTURE = new RegExp(`(url\\((?:\\\\"|')?)(https?:[^)"'\\\\\\s]+)|"${MARK}([^"\\\\]+)`, "g");
const PICTURED = { img: "src", input: "src", image: "href", video: "poster" };
const LOADING = /^(src|srcset|poster|data|background|xlink:href|imagesrcset|srcdoc|manifest|archive|code|codebase|classid)$/;
const HREF_LOADS = /^(link|base|image|use|feimage|lineargradient|radialgradient|pattern|mpath|script)$/;
const FRAMES = /^(iframe|frame|object|embed|portal|fencedframe)$/;

/** Pictures as data, so that a recording asks nobody. From style sheets only those that the page has loaded. */
class Pictures {
  data = new Map();  // by address; "" if it cannot be had, a promise until it is there
  room = LONGEST_PICTURES;

  constructor(origins) { this.origins = [location.origin, ...origins]; }

  /** What is to be waited for. */
  due(text) {
    const waits = [];
    for (const [, , loaded, marked] of text.matchAll(PICTURE)) {
      const url = marked ?? loaded;
      if (!URL.canParse(url) || !this.origins.includes(new URL(url).origin) || (loaded && !performance.getEntriesByName(url).length)) continue;
      if (!this.data.has(url)) {
        const coming = this.room > 0 ? this.fetch(url).catch(() => "") : Promise.resolve("");
        this.data.set(url, coming.then((data) => { this.data.set(url, data); }));
      }
      if (this.data.get(url).then) waits.push(this.data.get(url));
    }
    return waits;
  }

  async fetch(url) {
    const answer = await fetch(url, { cache: "force-cache", signal: AbortSignal.timeout(PICTURE_WAIT) }), blob = await answer.blob();
    if (!answer.ok || !/^(image|font)\//.test(blob.type) || blob.size * 4 / 3 > LONGEST_PICTURE) return "";
    return new Promise((done) => {
      const reader = Object.assign(new FileReader(), { onloadend: () => done(reader.result ?? "") });
      reader.readAsDataURL(blob);
    });
  }

  /** The JSON with data for addresses. */
  in(text) {
    return text.replace(PICTURE, (all, before, loaded, marked) => {
      const known = this.data.get(marked ?? loaded), data = known?.length && (this.room -= known.length) > 0 ? known : "";
      return marked ? `"${data}` : before + (data || loaded);
    });
  }
}

function clean(element, attributes, changing) {
  const tag = element.localName.toLowerCase();
  if (tag === "img" && !changing && element.currentSrc && (attributes.src || attributes.srcset)) attributes.src = element.currentSrc;
  for (const [name, value] of Object.entries(attributes)) {
    const key = name.toLowerCase(), target = typeof value === "string" ? value.trim() : "", inside = /^(data:|#)/i.test(target);
    if (key.startsWith("on")) { delete attributes[name]; continue; }
    if (typeof value !== "string") continue;
    const url = key === PICTURED[tag] && target && !inside && URL.canParse(target, document.baseURI) ? new URL(target, document.baseURI).href : "";
    if (url.startsWith("http")) { attributes[name] = MARK + url; continue; }
    const loads = FRAMES.test(tag) && /^(src|data)$/.test(key) ? target !== "about:blank"
      : key === "href" && HREF_LOADS.test(tag) ? tag === "base" || !inside
      : key === "srcdoc" || (LOADING.test(key) && target && !inside);
    if (loads) { if (changing) attributes[name] = null; else delete attributes[name]; }
  }
}

// ---- Masking ----

const WORDS_OF_THE_PAGE = /^(button|submit|reset|image|checkbox|radio)$/;
const SECRET = /(^|\s)(cc-|one-time-code|(current|new)-password)/;
const EDITABLE = 'textarea, [contenteditable]:not([contenteditable="false" i])';

const password = (input) => input.type === "password" || input.hasAttribute("data-rr-is-password");  // so rrweb calls one that was
/** Masked whatever the page asks for. */
const secret = (input) => password(input) || /^(hidden|file)$/.test(input.type) || SECRET.test(input.autocomplete);

/** One selector for all of these. */
const any = (...selectors) => selectors.filter(Boolean).join(", ");

// ---- Recording ----

const DEFAULTS = {
  prefix: "", credentials: "same-origin", filename: "recording.jsonl", maskInputs: true, mask: "", block: "",
  pictureOrigins: [], every: 5_000, maxBytes: 100 * 1024 ** 2, maxWaiting: 16 * 1024 ** 2,
};
const META = 4, SNAPSHOT = 2, CHANGE = 3, MUTATION = 0, INPUT = 5;  // rrweb's numbers

let current = null;

async function rrweb() {
  if (!globalThis.rrwebRecord) {
    const script = document.createElement("script");
    script.src = new URL("rrweb-record.js", import.meta.url);
    script.nonce = document.querySelector("script[nonce]")?.nonce ?? "";
    await new Promise((done, fail) => {
      script.onload = done;
      script.onerror = () => fail(new Error(`${script.src} cannot be loaded.`));
      document.head.append(script);
    }).finally(() => script.remove());
  }
  return globalThis.rrwebRecord.record;
}

export class DumbwaiterRecorder {
  /**
   * Begin to record this page. There is one recording at a time.
   *
   * Rejects if the server refuses the upload, or a selector is none. Without a network it records all the same, and uploads later.
   *
   * @param {Options} [options]
   * @returns {Promise<DumbwaiterRecorder>}
   */
  static async start(options = {}) {
    if (current && current.news.state !== "ended") throw new Error("This page is being recorded already: stop that first.");
    const recorder = current = new DumbwaiterRecorder(options);
    try {
      await recorder.begin(await rrweb());
    } catch (error) {
      recorder.end("failed", { message: error.message });
      recorder.rest();
      throw error;
    }
    return recorder;
  }

  /** @private */
  constructor(options) {
    this.options = { ...DEFAULTS, ...options };
    /** @type {News} */
    this.news = { state: "recording" };
    this.queue = [];  // what waits for pictures, and what comes after it
    this.ears = new AbortController();
    this.pictures = new Pictures(this.options.pictureOrigins);
    this.parts = new Parts(this.options, (news) => this.tell(news));
  }

  /**
   * The upload, as a task takes it; null until the server has been reached.
   *
   * @returns {{upload: string} | null}
   */
  get upload() { return this.parts.target && { upload: this.parts.target.id }; }

  /** Bytes recorded so far. */
  get bytes() { return this.parts.total; }

  /** Parts that have arrived. */
  get arrived() { return this.parts.arrived; }

  /** @private */
  async begin(record) {
    const { options, parts } = this, { maskInputs } = options;
    // of a wrong selector rrweb makes one that fits nothing, and then nothing is masked
    for (const selector of [options.mask, options.block]) if (selector) document.querySelector(selector);
    // what the page has marked stays marked, whatever else is to be masked
    const mask = options.mask = any("[data-mask]", options.mask), block = options.block = any("[data-block]", options.block);
    if (options.acrossPages) parts.goOn();
    this.record = record;
    const off = record({
      sampling: { mousemove: 50 },
      slimDOMOptions: true,
      errorHandler: (error) => { console.warn("dumbwaiter-recorder:", error); return true; },  // the page goes on
      ...options.rrweb,
      recordAfter: "DOMContentLoaded",
      inlineStylesheet: true,
      inlineImages: false,  // it would load some anew, before the visitor's eyes
      maskAllInputs: false,
      // "select" is not for its value, but for which option is marked
      maskInputOptions: { input: true, textarea: true, "select-one": true, "select-multiple": true, select: maskInputs },
      maskInputFn: (text, input) => this.masked(text, input),
      maskTextSelector: any(mask, maskInputs && EDITABLE),
      blockSelector: block,
      emit: (event) => this.take(event),
    });
    if (!off) throw new Error("rrweb cannot record this page; the console says why.");
    if (this.news.state === "ended") off(); else this.off = off;  // ended by the first event already
    const { signal } = this.ears;
    addEventListener("pagehide", () => this.leave(), { signal });
    addEventListener("pageshow", ({ persisted }) => persisted && this.back(), { signal });
    addEventListener("online", () => parts.hurry?.(), { signal });
    document.addEventListener("reset", ({ target }) => setTimeout(() => this.cleared(target)), { signal });
    document.addEventListener("visibilitychange", () => document.hidden && parts.seal(), { signal });
    const tried = new Promise((done) => { parts.tried = done; });
    parts.run();
    if (!parts.target) await tried;
    if (parts.refusal) throw parts.refusal;
  }

  /** @private */
  tell(news) {
    if (news.state === "ended") { this.end(news.reason, news); return; }
    if (this.news.state === "ended" || this.news.state === news.state) return;
    this.say(news);
  }

  /** @private */
  end(reason, more) {
    if (this.news.state === "ended") return;
    this.off?.();
    this.off = null;
    this.queue = [];
    this.say({ ...more, state: "ended", reason });
  }

  /** @private */
  say(news) {
    this.news = news;
    try { this.options.onState?.(news); } catch (error) { reportError(error); }
  }

  /** @private */
  rest() {
    this.ears.abort();
    if (current === this) current = null;
  }

  // ---- events ----

  /** @private */
  hides(input) {
    if (WORDS_OF_THE_PAGE.test(input.type)) return false;
    return this.options.maskInputs || secret(input) || input.closest(this.options.mask);
  }

  /** @private */
  masked(text, input) {
    if (!text || !this.hides(input)) return text;
    return password(input) ? "********" : text.replace(/[^\n]/g, "*");  // nor how long a password is
  }

  /** @private */
  take(event) {
    this.begun ||= event.type === META;
    if (!this.begun || this.off === null || this.news.state === "ended") return;
    const { data } = event;
    if (event.type === SNAPSHOT) this.walk(data.node);
    if (event.type === CHANGE && data.source === MUTATION) {
      for (const { node } of data.adds) this.walk(node);
      for (const change of data.attributes) {
        const element = this.record.mirror.getNode(change.id);
        if (element) clean(element, change.attributes, true); else change.attributes = {};
      }
    }
    const entry = { text: JSON.stringify(event) }, due = this.pictures.due(entry.text);
    entry.ready = due.length ? Promise.all(due).then(() => { entry.ready = null; this.write(); }) : null;
    this.queue.push(entry);
    this.write();
  }

  /** @private */
  walk(root) {
    for (const nodes = [root]; nodes.length;) {
      const node = nodes.pop(), { attributes } = node, element = attributes && this.record.mirror.getNode(node.id);
      nodes.push(...(node.childNodes ?? []));
      if (!element) continue;
      clean(element, attributes, false);
      // rrweb masks what is in an input, but not what stood there at first; nor the choice in a `mask`ed select
      if (element.matches("input") && !element.value && this.hides(element)) delete attributes.value;
      if (element.matches("select option") && this.hides(element.closest("select"))) delete attributes.selected;
    }
  }

  /**
   * What a form that was reset has in it, of which rrweb tells nothing.
   *
   * @private
   */
  cleared(form) {
    const { mirror } = this.record, { block } = this.options;
    for (const input of form.elements) {
      const id = mirror.getId(input), text = this.masked(input.value, input);
      if (id < 0 || !input.matches("input, select, textarea") || input.closest(block)) continue;
      this.take({ type: CHANGE, data: { source: INPUT, text, isChecked: Boolean(input.checked), id }, timestamp: Date.now() });
    }
  }

  /**
   * What waits for nothing, in order.
   *
   * @private
   */
  write() {
    while (this.queue.length && !this.queue[0].ready) {
      const why = this.parts.add(this.pictures.in(this.queue[0].text));
      if (why) this.end(why, { message: why === "limit" ? "The recording is as large as it may be." : "The network does not take what is recorded." });
      this.queue.shift();
    }
  }

  /** @private */
  hasten() {
    for (const entry of this.queue) entry.ready = null;
    this.write();
  }

  /** @private */
  leave() {
    this.hasten();
    this.parts.leave();
    if (this.options.acrossPages && !this.stopping && this.news.state !== "ended") this.parts.keep();
  }

  /**
   * The visitor is back on a page that the browser had kept.
   *
   * @private
   */
  back() {
    if (this.stopping || this.news.state === "ended" || !this.options.acrossPages) return;
    this.parts.goOn();
    this.record.takeFullSnapshot();
  }

  // ---- the end ----

  /**
   * End the recording, wait until all of it has arrived, and complete the upload.
   *
   * What ended before for want of room is completed as far as it goes. Rejects with an Error if the server refuses; its `status` and
   * `problem` are what the server said. While nobody answers it goes on trying, and `onState` tells so.
   *
   * @returns {Promise<{upload: string}>}
   */
  stop() { return this.stopping ??= this.finish(); }

  /** @private */
  async finish() {
    const { parts } = this;
    try {
      await new Promise((done) => { setTimeout(done); });  // what has just changed is told in a moment
      this.off?.();
      this.off = null;
      await Promise.all(this.queue.map(({ ready }) => ready));
      this.hasten();
      parts.seal();
      parts.hurry?.();
      while (!parts.idle) await parts.run();
      if (parts.refusal && !parts.arrived) throw parts.refusal;
      const upload = await parts.complete();
      this.end("stopped");
      return upload;
    } catch (error) {
      this.end("refused", { status: error.status, message: error.message });
      throw error;
    } finally {
      this.rest();
    }
  }
}
