/* Shows the recording that is chosen, and tells the button which video of it is wanted. The button and the list do the rest. */

import { eventsOf, fingerprint } from "./recordings.js";

const $ = (id) => document.getElementById(id);
const [player, video, unseen, play, seek, clock, views, button, options, list] = ["player", "video", "unseen", "play", "seek", "clock", "views", "button", "options", "list"].map($);
if (button) begin();

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
    if (told === "failed") hide("This recording cannot be shown here.");
  }

  function moved(at) {
    seek.value = at;
    seek.setAttribute("aria-valuetext", minutes(at));
    clock.textContent = `${minutes(at)} / ${minutes(duration)}`;
  }

  function run(on) {
    playing = on;
    play.toggleAttribute("data-playing", on);
    play.setAttribute("aria-label", on ? "Pause" : "Play");
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
    if (!events) { hide("This recording cannot be shown here. It can be exported all the same."); return; }
    unseen.hidden = true;
    tell({ order: "load", events, speed: Number(options.elements.speed.value) });
  }

  function wanted() {
    const given = Object.fromEntries([...new FormData(options)].map(([name, value]) => [name, Number(value)]));
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
    const about = "Your recording";
    input.parentElement.querySelector("b").textContent = file.name;
    input.parentElement.querySelector("small").textContent = size(file.size);
    input.checked = true;
    input.recording = { name: file.name, about, key: `own:${await fingerprint(file)}`, type: "video-export", arguments: {}, file, events: () => eventsOf(file) };
    choose(input.recording);
  }

  function ownTape() {
    const label = Object.assign(document.createElement("label"), { className: "tape own" });
    const input = Object.assign(document.createElement("input"), { type: "radio", name: "tape", value: "own" });
    const words = document.createElement("span");
    words.append(document.createElement("b"), document.createElement("small"));
    label.append(input, words);
    input.addEventListener("change", (event) => { event.stopPropagation(); choose(input.recording); });
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
    if (file && video.getAttribute("src") !== file.url) { video.src = file.url; video.setAttribute("aria-label", `The video of ${chosen.name}`); }
    watch(file && before === "working" ? "video" : "recording");
    if (state !== "none") list.refresh();
  });
  // A browser that cannot play it (no H.264, or the file stands on another host) offers the download alone.
  video.addEventListener("error", () => { if (video.hasAttribute("src")) { views.hidden = true; watch("recording"); } });

  list.titleOf = (task) => task.result?.title || task.files[0]?.name;

  const first = [...document.querySelectorAll("#shelf input")].find((input) => input.value === decodeURIComponent(location.hash.slice(1))) ?? document.querySelector("#shelf input");
  first.checked = true;
  choose(offer(first.dataset));
}

function minutes(ms) {
  const seconds = Math.floor(ms / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

function size(bytes) { return bytes < 1e6 ? `${Math.ceil(bytes / 1e3)} kB` : `${(bytes / 1e6).toFixed(1)} MB`; }
