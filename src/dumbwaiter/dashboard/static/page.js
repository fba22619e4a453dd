/* Keeps the cards of the page true: asks the API how each task stands, and asks for work when a button is pressed. */

const FIRST = 700;       // ms between two questions while something moves
const STILL = 2_000;     // the most we wait while nothing moves
const SLOWEST = 10_000;  // and while nobody answers, or nobody looks

const WORDS = {
  queued: "Waiting for its turn",
  scheduled: "Waiting for its time",
  retrying: "Something went wrong; it will be tried again",
  running: "Being made",
  cancelling: "Stopping",
  cancelled: "Cancelled",
};

class Card {
  constructor(root) {
    this.root = root;
    this.task = root.dataset.task;
    this.version = "";
    this.wait = FIRST;
    this.timer = 0;
    this.asking = false;
    this.form = root.querySelector("[data-do=make]");
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.make(); });
    this.cancelButton.addEventListener("click", () => this.cancel());
    this.watchVideo();
    if (root.dataset.state === "working") this.ask();
  }

  get cancelButton() { return this.root.querySelector("[data-do=cancel]"); }
  get downloadLink() { return this.root.querySelector("[data-do=download]"); }
  get makeButton() { return this.form.querySelector("button"); }

  async make() {
    const focused = this.form.contains(document.activeElement);  // before it is disabled, which loses the focus
    this.makeButton.disabled = true;
    try {
      const answer = await fetch(this.form.action, { method: "POST", headers: { Accept: "application/json" } });
      const body = await answer.json();
      if (!answer.ok) throw new Error(body.detail);
      this.follow(body.task, focused);
    } catch (error) {
      this.say("headline", "It could not be asked for. " + (error instanceof TypeError ? "Is the server there?" : error.message ?? ""));
    } finally {
      this.makeButton.disabled = false;
    }
  }

  follow(id, focused) {
    this.task = id;
    this.version = "";
    this.draw({ display: "working", phase: "queued", files: [] });
    if (focused) this.cancelButton.focus();
    this.soon();
  }

  async cancel() {
    this.cancelButton.disabled = true;
    try {
      const answer = await fetch(`tasks/${this.task}/cancel`, { method: "POST" });
      const body = await answer.json();
      const task = answer.status === 409 ? body.task : body;
      if (task?.task_id) this.draw(task);
    } catch { /* the next question tells how it stands */ }
    this.cancelButton.disabled = false;
    this.soon();
  }

  soon() {
    this.wait = FIRST;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.ask(), 0);
  }

  async ask() {
    if (this.asking) return;
    this.asking = true;
    const id = this.task;
    try {
      const headers = this.version ? { "If-None-Match": this.version } : {};
      const answer = await fetch(`tasks/${id}`, { headers, cache: "no-store" });
      if (id === this.task) {
        if (answer.status === 404) return this.gone();
        if (answer.ok) {
          this.version = answer.headers.get("ETag") ?? "";
          this.wait = FIRST;
          this.draw(await answer.json());
        } else {
          this.wait = answer.status === 304 ? Math.min(this.wait * 1.15, STILL) : Math.min(this.wait * 2, SLOWEST);
        }
      }
    } catch {
      this.wait = Math.min(this.wait * 2, SLOWEST);
      this.say("headline", "The server does not answer; still trying");
    } finally {
      this.asking = false;
    }
    clearTimeout(this.timer);
    if (this.root.dataset.state === "working") {
      // A page in the background asks seldom, and at once when it is looked at again.
      this.timer = setTimeout(() => this.ask(), document.hidden ? SLOWEST : this.wait);
    }
  }

  gone() {
    this.asking = false;
    this.task = "";
    this.draw({ display: "none", phase: "none", files: [] });
  }

  draw(task) {
    const state = task.display;
    const working = state === "working";
    const changed = this.root.dataset.state !== state;
    const focusLost = changed && this.root.contains(document.activeElement) && document.activeElement !== document.body;
    this.root.dataset.state = state;
    this.root.dataset.task = task.task_id ?? this.task;
    this.say("headline", headline(task));
    this.progress(task);
    this.root.querySelector(".making").hidden = !working;
    this.cancelButton.hidden = !working || task.phase === "cancelling";
    this.form.hidden = working;
    this.makeButton.textContent = state === "none" ? this.makeButton.dataset.first : "Make again";
    this.makeButton.classList.toggle("main", state !== "ready");
    this.result(state === "ready" ? task.files : []);
    if (focusLost && !working) (state === "ready" && !this.downloadLink.hidden ? this.downloadLink : this.makeButton).focus();
  }

  progress(task) {
    const bar = this.root.querySelector("progress");
    const running = task.phase === "running";
    const percent = Math.floor(task.progress_percentage ?? 0);
    if (running) bar.value = percent; else bar.removeAttribute("value");
    this.say("percent", running ? `${percent} %` : "");
    this.say("step", running ? sentence(task.current_step) + (task.attempt > 1 ? ` (attempt ${task.attempt} of ${task.max_attempts})` : "") : "");
    this.say("left", running ? left(task.estimated_remaining_seconds) : "");
    const rise = task.display === "ready" ? 1 : running ? percent / 100 : 0;
    this.root.querySelector(".shaft").style.setProperty("--rise", String(rise));
  }

  result(files) {
    const link = this.downloadLink;
    const place = this.root.querySelector(".result");
    const file = files[0];
    link.hidden = !file;
    if (!file) { place.replaceChildren(); return; }
    link.href = file.url;
    link.download = file.name;
    link.textContent = `Download (${size(file.size)})`;
    if (file.content_type.startsWith("video/") && place.firstChild?.getAttribute("src") !== file.url) {
      const video = Object.assign(document.createElement("video"), { controls: true, preload: "metadata", playsInline: true });
      video.setAttribute("aria-label", this.root.querySelector("h2").textContent);
      video.setAttribute("src", file.url);
      place.replaceChildren(video);
      this.watchVideo();
    }
  }

  // A browser that cannot play it (no H.264, or the file stands on another host) shows the download alone.
  watchVideo() {
    const video = this.root.querySelector("video");
    video?.addEventListener("error", () => video.remove(), { once: true });
    if (video?.error) video.remove();
  }

  say(what, words) {
    const place = this.root.querySelector(`[data-say=${what}]`);
    if (place.textContent !== words) place.textContent = words;  // an unchanged live region is not read out again
  }
}

function headline(task) {
  if (task.phase === "failed") return task.user_message ?? "Something went wrong while it was being made.";
  if (task.phase === "success") return task.display === "ready" ? "Ready" : "It was kept for a while and has been removed";
  return WORDS[task.phase] ?? "";
}

function sentence(step) {
  return step ? step[0].toUpperCase() + step.slice(1) : "";
}

function left(seconds) {
  if (seconds == null) return "";
  if (seconds < 5) return "a few seconds left";
  if (seconds < 90) return `about ${Math.ceil(seconds / 5) * 5} s left`;
  return `about ${Math.round(seconds / 60)} min left`;
}

function size(bytes) {
  if (bytes < 1000) return `${bytes} bytes`;
  if (bytes < 1e6) return `${Math.round(bytes / 1e3)} kB`;
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

const cards = [...document.querySelectorAll(".card")].map((root) => new Card(root));

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) for (const card of cards) if (card.root.dataset.state === "working") card.soon();
});
