// The replay page: owns the clock, so that nothing moves unless step() says so. What is covered and what moves by itself have files
// of their own: masks.js and moving.js.
"use strict";
(() => {
  const real = {
    now: performance.now.bind(performance),
    setTimeout: window.setTimeout.bind(window),
  };
  // Carets blink, scrolling takes its time, and a video without scripts has controls that fade, all by the browser's own clock.
  const STILL = [
    "*, *::before, *::after { caret-animation: manual !important; scroll-behavior: auto !important }",
    "video::-webkit-media-controls { display: none !important }",
    "progress:indeterminate { appearance: none !important }",
  ];
  // One next() call never keeps the browser busy longer than this, so that a cancel is heard in time.
  const SLICE_MS = 200;
  const SETTLE_MS = 2000;
  const POSTER_MS = 50;
  const MOST_ROUNDS = 4;
  // rrweb adds up differences of our clock, which may lie a hair below the moment that is due.
  const HAIR_MS = 1e-3;
  const silent = () => {};

  const warnings = new Map();
  const shadowRoots = new Set();
  // the style attributes of the pages' roots, while `forget` has others there
  const asBefore = new Map();
  const animationStart = new WeakMap();
  const epoch = Date.now();
  let replayer = null;
  let canvases = false;
  let now = 0;
  let origin = 0;
  let changed = true;

  // --- the clock: timers and animation frames fire when the recording's time reaches them ---

  const timers = new Map();
  let frames = new Map();
  let sequence = 1;

  function takeClock() {
    performance.now = () => now;
    Date.now = () => epoch + now;
    window.requestAnimationFrame = (callback) => (frames.set(sequence, callback), sequence++);
    window.cancelAnimationFrame = (id) => void frames.delete(id);
    const later = (every) => (callback, delay = 0, ...args) => {
      const wait = Math.max(0, Number(delay) || 0);
      timers.set(sequence, { at: now + wait, every: every ? Math.max(1, wait) : 0, callback, args });
      return sequence++;
    };
    window.setTimeout = later(false);
    window.setInterval = later(true);
    window.clearTimeout = window.clearInterval = (id) => void timers.delete(id);
  }

  function guarded(callback, ...args) {
    try {
      callback(...args);
    } catch (error) {
      warn(`the player raised ${String(error).slice(0, 200)}`);
    }
  }

  function advance(time) {
    now = time;
    const due = [...timers].filter(([, timer]) => timer.at <= time).sort((a, b) => a[1].at - b[1].at);
    for (const [id, timer] of due) {
      if (!timers.has(id)) continue;
      if (timer.every) timer.at = time + timer.every;
      else timers.delete(id);
      changed = true;
      guarded(timer.callback, ...timer.args);
    }
    const round = frames;
    frames = new Map();
    for (const callback of round.values()) guarded(callback, time);
  }

  function warn(text) {
    warnings.set(text, (warnings.get(text) || 0) + 1);
  }

  // --- which moment each frame shows; frames before the first lead up to it, without pictures ---

  let pieces = [[0, 0, 40]];
  let at = 0;

  function takeTimeline(timeline) {
    pieces = timeline;
    const [[, start, interval]] = pieces;
    at = 0 - Math.ceil(start / interval); // and not -0, which JSON does not have
  }

  function momentOf(frame) {
    const [first, moment, interval] = pieces.findLast((piece) => piece[0] <= frame) || pieces[0];
    return Math.max(0, moment + (frame - first) * interval);
  }

  // --- CSS animations follow the recording's clock, whatever the browser's own timeline does ---

  function documents(root, found = []) {
    if (!root) return found;
    found.push(root);
    for (const frame of root.querySelectorAll("iframe")) {
      try {
        documents(frame.contentDocument, found);
      } catch (error) {
        // another origin's document: it is not shown either
      }
    }
    return found;
  }

  // The recorded page's documents and shadow roots, which document.querySelectorAll() and getAnimations() do not look into.
  function scopes() {
    for (const root of shadowRoots) if (!root.isConnected) shadowRoots.delete(root);
    const inside = [...shadowRoots].flatMap((root) => documents(root));
    return [...documents(replayer.iframe.contentDocument), ...inside];
  }

  function rememberShadowRoots(node) {
    if (node.shadowRoot) shadowRoots.add(node.shadowRoot);
    const root = node.getRootNode ? node.getRootNode() : node;
    // one that was attached when its first child came. A link has a `host` too, and is its own root until it stands somewhere
    if (root.nodeType === Node.DOCUMENT_FRAGMENT_NODE && root.host) shadowRoots.add(root);
  }

  // --- rules of ours, in each document and shadow root ---

  const sheets = new WeakMap();
  let rules = "";

  function sheetFor(page) {
    if (!sheets.has(page)) {
      const sheet = new page.defaultView.CSSStyleSheet();
      sheet.replaceSync(rules);
      sheets.set(page, sheet);
    }
    return sheets.get(page);
  }

  // rrweb replaces a document's list of sheets when the recording does, so each changed page is looked at.
  function adopt(scopes) {
    for (const scope of scopes) {
      const page = scope.ownerDocument || scope;
      if (!page.defaultView) continue; // its frame has gone since
      const sheet = sheetFor(page);
      if (!scope.adoptedStyleSheets.includes(sheet)) scope.adoptedStyleSheets = [sheet, ...scope.adoptedStyleSheets];
    }
  }

  // Everything that is ours to move, at this time of the recording: whether an animation moved.
  function seekAnimations(time) {
    const pages = scopes();
    showTime(time);
    if (changed) {
      adopt(pages);
      Masks.cover(pages);
      Moving.find(pages, time, stateOf);
      for (const page of pages) layOut(page);
    }
    const moving = Moving.follow(time);
    if (moving === 2) changed = true;
    const moved = seekStyles([document, ...pages], time);
    if (moved) followUp(pages, time);
    return moved || moving === 1;
  }

  // What moved may begin transitions, of what inherits from it or asks for its size, and those may begin more. They are ours from
  // their first moment on: left to the drawing of the frame, they would run by the browser's clock until the next one.
  function followUp(pages, time) {
    for (let round = 0, known = -1; round < MOST_ROUNDS && known !== begun; round++) {
      known = begun;
      for (const page of pages) layOut(page);
      seekStyles([document, ...pages], time, true);
    }
  }

  // What is scrolled to, and how far a page reaches, must be the same whether or not a frame is drawn.
  function layOut(page) {
    const root = page.documentElement;
    if (root) void root.offsetHeight;
  }

  // Whether the page's style has an animation stand still. Ours stand still all the time, and do not tell.
  function paused({ effect, animationName }) {
    if (!animationName || !effect || !effect.target) return false;
    const view = effect.target.ownerDocument.defaultView;
    if (!view) return false;
    const style = view.getComputedStyle(effect.target, effect.pseudoElement);
    const states = style.animationPlayState.split(", ");
    return states[style.animationName.split(", ").indexOf(animationName) % states.length] === "paused";
  }

  const pausedSince = new WeakMap();

  // Notes when the page pauses an animation and lets it go on: whether it stands still.
  function stands(animation, time) {
    if (!changed) return pausedSince.has(animation);
    if (paused(animation)) {
      if (!pausedSince.has(animation)) pausedSince.set(animation, time);
      return true;
    }
    if (pausedSince.has(animation)) {
      animationStart.set(animation, animationStart.get(animation) + time - pausedSince.get(animation));
      pausedSince.delete(animation);
    }
    return false;
  }

  let begun = 0; // animations so far

  function seekStyles(pages, time, onlyNew = false) {
    let moved = false;
    for (const scope of pages) {
      for (const animation of scope.getAnimations()) {
        // one that follows how far something is scrolled needs no clock
        if (!animation.timeline || "source" in animation.timeline) continue;
        const known = animationStart.has(animation);
        if (known && onlyNew) continue;
        // a finished one that keeps its last state, or one that a script of the page paused, moves nothing
        if (animation.playState === "finished" || (!known && animation.playState === "paused" && !paused(animation))) continue;
        if (!known) {
          begun++;
          animationStart.set(animation, time - (Number(animation.currentTime) || 0));
          animation.pause();
        }
        if (stands(animation, time)) continue;
        const at = time - animationStart.get(animation);
        const end = animation.effect ? animation.effect.getComputedTiming().endTime : Infinity;
        // an animation that ends here still moved something
        if (at >= end || (clicked && isPointer(animation))) guarded(() => animation.finish());
        else guarded(() => (animation.currentTime = at));
        moved = true;
      }
    }
    return moved;
  }

  // The pointer glides from one place to the next, but is where somebody clicks: what follows may be the end.
  let clicked = false;
  const isPointer = ({ effect, transitionProperty }) =>
    transitionProperty && effect.target && !effect.pseudoElement && effect.target.classList.contains("replayer-mouse");
  const isClick = ({ type, data }) => type === 3 && data.source === 2 && data.x !== undefined;

  // --- what is not there yet: pictures in data URLs and fonts load in their own time ---

  // Pictures of canvases that are being taken from the recording.
  let bitmaps = 0;
  const hopeless = new WeakSet(); // style sheets that did not come

  function countBitmaps() {
    const create = window.createImageBitmap.bind(window);
    window.createImageBitmap = async (...args) => {
      bitmaps++;
      try {
        return await create(...args);
      } finally {
        bitmaps--;
      }
    };
  }

  // Nothing tells when a video shows its poster. A picture of the same address tells when it is there, and a moment later it is shown.
  const posters = new WeakMap();

  function comesPoster(video) {
    const address = video.getAttribute("poster");
    if (!posters.has(video) || posters.get(video).address !== address) {
      const poster = { address, there: false };
      const image = new video.ownerDocument.defaultView.Image();
      image.src = address;
      image.decode().catch(silent).then(() => real.setTimeout(() => (poster.there = true), POSTER_MS));
      posters.set(video, poster);
    }
    return !posters.get(video).there;
  }

  const comingSheets = (scope) =>
    [...scope.querySelectorAll('link[rel~="stylesheet" i][href^="data:" i]')].filter((link) => !link.sheet && !link.disabled && !hopeless.has(link));

  function unfinished() {
    if (Moving.waiting() || bitmaps) return true;
    for (const scope of scopes()) {
      for (const image of scope.querySelectorAll("img")) if (!image.complete) return true;
      if (comingSheets(scope).length) return true;
      for (const video of scope.querySelectorAll('video[poster^="data:" i]')) if (comesPoster(video)) return true;
      if (scope.body) void scope.body.offsetHeight; // fonts begin to load at layout
      if (scope.fonts && scope.fonts.status === "loading") return true;
    }
    return false;
  }

  function sleep(milliseconds) {
    return new Promise((done) => real.setTimeout(done, milliseconds));
  }

  // What rrweb knows of a video that the recorded page played.
  function stateOf(video) {
    const state = replayer.mediaManager.mediaMap.get(video);
    const meta = replayer.getMirror().getMeta(video);
    const { loop, rr_mediaLoop: looping = loop !== undefined } = (meta && meta.attributes) || {};
    if (!state) return { playing: video.autoplay, from: 0, since: null, rate: 1, loop: looping };
    return {
      playing: state.isPlaying,
      from: state.currentTimeAtLastInteraction,
      since: state.lastInteractionTimeOffset,
      rate: state.playbackRate,
      loop: looping,
    };
  }

  // --- what is drawn over the page: the recording's time, and a caption ---

  let clock = null;

  function clockTime(time) {
    const seconds = Math.floor(time / 1000 + 1e-6);
    const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
    const parts = hours ? [hours, String(minutes).padStart(2, "0")] : [minutes];
    return [...parts, String(seconds % 60).padStart(2, "0")].join(":");
  }

  function showTime(time) {
    if (!clock) return;
    const text = clockTime(time);
    if (clock.textContent === text) return;
    clock.textContent = text;
    changed = true;
  }

  function overlay(className, text) {
    const box = document.createElement("div");
    box.className = className;
    box.textContent = text;
    // the same character has other forms in other languages
    box.lang = /[\u3040-\u30ff]/.test(text) ? "ja" : /[\uac00-\ud7af]/.test(text) ? "ko" : "zh-CN";
    document.body.append(box);
    return box;
  }

  // A canvas takes colours alone, not the other words that the property allows.
  function isColour(value) {
    const brush = document.createElement("canvas").getContext("2d");
    const painted = ["#000000", "#ffffff"].map((before) => {
      brush.fillStyle = before;
      brush.fillStyle = value;
      return brush.fillStyle;
    });
    return CSS.supports("color", value) && painted[0] === painted[1];
  }

  // --- placing the page in the picture ---

  function fit(view, picture) {
    const near = Math.abs(view.width - picture.width) <= 1 && Math.abs(view.height - picture.height) <= 1;
    const scale = near ? 1 : Math.min(picture.width / view.width, picture.height / view.height, picture.scale);
    const left = near ? 0 : Math.max(0, (picture.width - view.width * scale) / 2);
    const top = near ? 0 : Math.max(0, (picture.height - view.height * scale) / 2);
    const wrapper = replayer.wrapper;
    wrapper.style.transform = `translate(${left}px, ${top}px) scale(${scale})`;
    wrapper.style.setProperty("--unscale", 1 / scale);
    changed = true;
  }

  function watchTimer(timer) {
    // Mouse positions of one event are actions of their own and cast no event.
    const add = timer.addAction.bind(timer);
    timer.addAction = (action) => {
      const act = action.doAction;
      action.doAction = () => {
        changed = true;
        guarded(act);
      };
      add(action);
    };
  }

  window.Player = {
    // What of these options cannot be, in words; null if all can. To be asked before `load`.
    fault({ masks, background }) {
      const wrong = Masks.wrong(masks);
      if (wrong !== undefined) return `masks: ${JSON.stringify(wrong)} is no CSS selector of elements`;
      return isColour(background) ? null : `background=${JSON.stringify(background)} is no CSS colour`;
    },

    async load(options) {
      const events = Moving.read(await (await fetch("events.json")).text(), warn);
      takeClock();
      takeTimeline(options.timeline);
      canvases = options.canvas;
      if (!options.cursor) document.body.classList.add("no-cursor");
      if (!options.clicks) document.body.classList.add("no-clicks");
      document.body.style.background = options.background;
      if (options.text) overlay("caption", options.text);
      if (options.clock) clock = overlay("clock", "");
      Masks.take(options.masks);
      rules = `@layer dumbwaiter { ${[...STILL, ...Masks.rules(options.masks)].join("\n")} }`;
      countBitmaps();
      // it would stop the clock for style sheets, which are in the recording or do not come
      rrweb.Replayer.prototype.waitForStylesheetLoad = silent;
      replayer = new rrweb.Replayer(events, {
        root: document.getElementById("root"),
        mouseTail: options.mouseTrail ? { strokeStyle: "#f43f5e" } : false,
        UNSAFE_replayCanvas: options.canvas,
        pauseAnimation: false,
        triggerFocus: true,
        showWarning: true,
        showDebug: false,
        plugins: [{ onBuild: rememberShadowRoots }],
        logger: {
          log: silent,
          info: silent,
          debug: silent,
          error: silent,
          warn: (...parts) => warn(parts.some((part) => /not found/i.test(String(part)))
            ? "an event names a node that is not on the page"
            : `the player warned: ${String(parts[1] ?? parts[0]).slice(0, 200)}`),
        },
      });
      replayer.on("resize", (view) => fit(view, options.picture));
      replayer.on("event-cast", (event) => {
        changed = true;
        clicked ||= isClick(event);
      });
      watchTimer(replayer.timer);
      advance(1);
      advance(2);
      return events.length;
    },

    // Starts at time 0.
    begin() {
      origin = now;
      replayer.play(0);
    },

    // Runs on without pictures, up to the frame before `until`, but not for long: the frame that is reached, and whether something
    // still loads that is to be waited for, as it would be if a picture was taken. So what follows is what a whole run shows.
    run(until) {
      const limit = real.now() + SLICE_MS;
      while (at < until && real.now() < limit) {
        if (this.step(momentOf(at++)) === 2 && unfinished()) return [at, true];
      }
      return [at, false];
    },

    // Moves the recording to `time` (milliseconds): 2 if its content may have changed, 1 if only an animation moved, else 0.
    step(time) {
      changed = false;
      advance(origin + time + HAIR_MS);
      let moved = true; // if the page is so odd that this fails, something may have
      guarded(() => (moved = seekAnimations(time)));
      clicked = false;
      return changed ? 2 : moved ? 1 : 0;
    },

    // Runs to the next frame that may differ from the one before it: [frame, change, unfinished].
    next(last) {
      const limit = real.now() + SLICE_MS;
      while (at <= last) {
        const frame = at++;
        const change = this.step(momentOf(frame));
        if (change) return [frame, change, change === 2 && unfinished()];
        if (real.now() > limit) return [at, 0, false];
      }
      return [last + 1, 0, false];
    },

    // The browser keeps what it once found out of which parts of a page are drawn apart, also when it would find otherwise by now: of
    // what is fixed to a page that has scrolled and does not any more, say; and so the edges of that depend on what was drawn before. Between
    // two calls, the first with true, and a frame drawn after each, it finds all out anew.
    forget(begins) {
      for (const root of scopes().map((scope) => scope.documentElement)) {
        if (!root?.style) continue;
        if (begins) {
          asBefore.set(root, root.getAttribute("style"));
          root.style.setProperty("will-change", "opacity", "important");
        } else if (asBefore.has(root)) {
          const style = asBefore.get(root);
          if (style === null) root.removeAttribute("style");
          else root.setAttribute("style", style);
        }
      }
      if (!begins) asBefore.clear();
    },

    // Waits (real time) for stills of what moves by itself, and at most two seconds for pictures and fonts that are inside the recording.
    async settle() {
      await Moving.bring(sleep);
      const until = real.now() + SETTLE_MS;
      while (unfinished() && real.now() < until) await sleep(4);
      for (const scope of scopes()) for (const link of comingSheets(scope)) hopeless.add(link);
    },

    // Masks that have covered nothing so far.
    unmasked: () => Masks.unseen(),

    // What was warned of since this was last asked, each with how often.
    warnings() {
      const said = [...warnings];
      warnings.clear();
      return said;
    },
  };
})();
