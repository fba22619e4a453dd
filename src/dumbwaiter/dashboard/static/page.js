/* Shows the recording that is chosen, and tells the button which video of it is wanted. The button and the list do the rest. */

import { eventsOf, fingerprint } from "./recordings.js";

const MOST_NAMES = 200;
const $ = (id) => document.getElementById(id);
const [player, video, unseen, play, seek, clock, views, button, options, list] = ["player", "video", "unseen", "play", "seek", "clock", "views", "button", "options", "list"].map($);
const texts = JSON.parse($("page").dataset.texts);
const [tags, tape] = [store("localStorage", "dumbwaiter-names"), store("sessionStorage", "dumbwaiter-own")];
begin();

function begin() {
  let chosen = null;   // { name, about, key, type, arguments, events() } and for one's own: file
  let turn = 0;
  let duration = 0;
  let playing = false;
  const frame = new Promise((here) => addEventListener("message", ({ source, data }) => {
    if (!player || source !== player.contentWindow) return;
    if (data.told === "here") here((order) => player.contentWindow.postMessage(order, location.origin));
    else heard(data);
  }));
  // It may have been there before us.
  const greet = () => player?.contentWindow.postMessage({ order: "greet" }, location.origin);
  player?.addEventListener("load", greet);
  greet();

  // ---- the stage ----

  function heard({ told, at, duration: all, width, height }) {
    if (told === "loaded") {
      duration = all;
      seek.max = all;
      for (const control of [play, seek]) control.disabled = false;
      if (chosen.file) $("about").textContent = `${minutes(all)} · ${width} × ${height}`;
      moved(0);
    }
    if (told === "time") moved(at);
    if (told === "ended") { moved(duration); run(false); }
    if (told === "failed") hide(texts.broken);
  }

  function moved(at) {
    seek.value = at;
    seek.setAttribute("aria-valuetext", minutes(at));
    clock.textContent = `${minutes(at)} / ${minutes(duration)}`;
  }

  function run(on) {
    playing = on;
    play.toggleAttribute("data-playing", on);
    play.setAttribute("aria-label", on ? texts.pause : texts.play);
  }

  const tell = async (order) => player && (await frame)(order);

  play.addEventListener("click", () => {
    const at = Number(seek.value) >= duration ? 0 : Number(seek.value);
    run(!playing);
    tell(playing ? { order: "play", at } : { order: "pause" });
  });
  seek.addEventListener("input", () => { tell({ order: "seek", at: Number(seek.value) }); moved(Number(seek.value)); });

  function hide(why) {
    unseen.textContent = why;
    unseen.hidden = false;
    clock.textContent = "";
    for (const control of [play, seek]) control.disabled = true;
  }

  function watch(what) {
    const made = what === "video";
    views.parentElement.dataset.view = what;
    video.hidden = !made;
    for (const view of views.children) view.setAttribute("aria-pressed", String(view.dataset.view === what));
    if (made && playing) { run(false); tell({ order: "pause" }); }
    if (!made) video.pause();
  }

  views.addEventListener("click", ({ target }) => { if (target.dataset.view) watch(target.dataset.view); });

  // ---- which recording, and which video of it ----

  async function choose(recording) {
    const mine = ++turn;
    chosen = recording;
    run(false);
    $("name").textContent = recording.name;
    $("about").textContent = recording.about;
    hide("");
    wanted();
    const events = player ? await recording.events().catch(() => null) : null;
    if (mine !== turn) return;
    if (!events) { hide(recording.file || !recording.own ? texts.unseen : texts.once_more); return; }
    unseen.hidden = true;
    tell({ order: "load", events, speed: Number(options.elements.speed.value) });
  }

  function wanted() {
    // What has no value is as it is without a choice.
    const given = Object.fromEntries([...new FormData(options)].filter(([, value]) => value).map(([name, value]) => [name, Number(value) || value]));
    const usual = [...options.elements].every((input) => input.tagName !== "INPUT" || input.checked === input.defaultChecked);
    Object.assign(button, {
      type: chosen.type, ariaLabel: chosen.name, file: chosen.file ?? null, arguments: usual ? chosen.arguments : { ...chosen.arguments, ...given },
      key: chosen.key + (usual ? "" : `:${Object.values(given).join("-")}`),
    });
  }

  options.addEventListener("change", () => {
    wanted();
    tell({ order: "speed", speed: Number(options.elements.speed.value) });
  });
  options.addEventListener("submit", (event) => event.preventDefault());

  $("shelf").addEventListener("change", ({ target: { value, dataset } }) => {
    history.replaceState(null, "", `#${value}`);
    choose(offer(dataset));
  });

  const offer = (data) => ({
    name: data.name, about: data.about, key: data.key, type: data.type, arguments: JSON.parse(data.arguments),
    events: async () => data.recording ? (await fetch(data.recording)).json() : null,
  });

  async function own(file) {
    const input = document.querySelector("#shelf .own input") ?? ownTape();
    label(input, { name: file.name, bytes: file.size, key: `own:${await fingerprint(file)}` }, file);
    take(input);
  }

  /** The card of one's own; after a reload without the file, which only the person can hand over again. */
  function label(input, mine, file) {
    input.parentElement.querySelector("b").textContent = mine.name;
    input.parentElement.querySelector("small").textContent = size(mine.bytes);
    input.recording = { ...mine, own: true, about: texts.yours, type: "video-export", arguments: {}, file, events: async () => file ? eventsOf(file) : null };
    tape.write(mine);
  }

  function take(input) {
    input.checked = true;
    history.replaceState(null, "", "#own");
    choose(input.recording);
  }

  function ownTape() {
    const label = Object.assign(document.createElement("label"), { className: "tape own" });
    const input = Object.assign(document.createElement("input"), { type: "radio", name: "tape", value: "own" });
    const words = document.createElement("span");
    words.append(document.createElement("b"), document.createElement("small"));
    label.append(input, words);
    input.addEventListener("change", (event) => { event.stopPropagation(); take(input); });
    $("shelf").append(label);
    return input;
  }

  $("file").addEventListener("change", ({ target }) => { if (target.files[0]) own(target.files[0]); target.value = ""; });

  // The whole page takes what is dropped: nobody has to aim.
  const dropping = (on) => document.body.classList.toggle("dropping", on);
  addEventListener("dragover", (event) => { event.preventDefault(); dropping(event.dataTransfer.types.includes("Files")); });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) dropping(false); });
  addEventListener("drop", (event) => {
    event.preventDefault();
    dropping(false);
    if (event.dataTransfer.files[0]) own(event.dataTransfer.files[0]);
  });

  // ---- what comes of it ----

  button.addEventListener("dumbwaiter-state", ({ detail: { state, before, task } }) => {
    const file = state === "ready" ? task.files.find((one) => one.content_type.startsWith("video/")) : null;
    views.hidden = !file;
    if (file && video.getAttribute("src") !== file.url) { video.src = file.url; video.setAttribute("aria-label", texts.video_of.replace("{name}", chosen.name)); }
    watch(file && before === "working" ? "video" : "recording");
    if (state !== "none") list.refresh();
  });
  button.addEventListener("dumbwaiter-make", (event) => {
    // The card has come back without its file, and another may have been chosen now: seen first, then sent.
    const { file } = event.detail;
    if (file && file !== chosen.file) { event.preventDefault(); own(file); }
  });
  button.addEventListener("dumbwaiter-task", ({ detail: { task } }) => { if (task) call(task.task_id, chosen.name); });
  // Made again from the list, it is the same recording.
  list.addEventListener("dumbwaiter-task", (event) => {
    const { task } = event.detail, before = names[event.composedPath()[0].taskId];
    if (task && before) call(task.task_id, before);
  });
  // A browser that cannot play it (no H.264, or the file stands on another host) offers the download alone.
  video.addEventListener("error", () => { if (video.hasAttribute("src")) { views.hidden = true; watch("recording"); } });

  // The server does not tell what a task was asked for with: this browser remembers what the recording was called.
  let names = tags.read() ?? {};
  function call(id, name) {
    if (names[id] === name) return;
    names = Object.fromEntries([...Object.entries(names).filter(([other]) => other !== id), [id, name]].slice(-MOST_NAMES));
    tags.write(names);
  }
  list.titleOf = (task) => names[task.task_id] || task.result?.title || task.files[0]?.name;
  if (matchMedia("(max-width: 32rem)").matches) $("settings").open = false;

  const mine = tape.read(), kept = mine && ownTape();
  if (kept) label(kept, mine, null);
  if (kept && location.hash === "#own") { take(kept); return; }
  const first = [...document.querySelectorAll("#shelf input")].find((input) => input.value === decodeURIComponent(location.hash.slice(1))) ?? document.querySelector("#shelf input");
  first.checked = true;
  choose(offer(first.dataset));
}

/** A value that the browser keeps; where it keeps none, there is none. */
function store(where, key) {
  return {
    read() { try { return JSON.parse(window[where].getItem(key)); } catch { return null; } },
    write(value) { try { window[where].setItem(key, JSON.stringify(value)); } catch { /* full, or not allowed */ } },
  };
}

function minutes(ms) {
  const seconds = Math.floor(ms / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

function size(bytes) { return bytes < 1e6 ? `${Math.ceil(bytes / 1e3)} kB` : `${(bytes / 1e6).toFixed(1)} MB`; }
