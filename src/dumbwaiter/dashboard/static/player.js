/* Inside the player's frame: replays what the page hands in, does what it says, and tells it how far it is. */

"use strict";
(() => {
  let replayer = null;
  let playing = false;
  let view = { width: 1280, height: 720 };

  const tell = (what) => parent.postMessage(what, location.origin);
  const silent = () => {};

  function fit() {
    const wrapper = document.querySelector(".replayer-wrapper");
    if (!wrapper) return;
    const scale = Math.min(innerWidth / view.width, innerHeight / view.height);
    wrapper.style.transform = `scale(${scale}) translate(-50%, -50%)`;
  }

  function load({ events, speed }) {
    replayer?.destroy();
    document.body.replaceChildren();
    playing = false;
    replayer = new rrweb.Replayer(events, {
      root: document.body, speed, mouseTail: false, showWarning: false, skipInactive: false, triggerFocus: false,
      logger: { log: silent, info: silent, debug: silent, warn: silent, error: silent },
    });
    replayer.on("resize", (size) => { view = size; fit(); });
    replayer.on("finish", () => { playing = false; tell({ told: "ended" }); });
    const meta = events.find((event) => event.type === 4)?.data;
    if (meta) view = { width: meta.width, height: meta.height };
    replayer.pause(0);
    fit();
    const { totalTime } = replayer.getMetaData();
    tell({ told: "loaded", duration: totalTime, ...view });
  }

  const orders = {
    greet: () => tell({ told: "here" }),
    load,
    play: ({ at }) => { replayer?.play(at); playing = true; },
    pause: () => { replayer?.pause(); playing = false; },
    seek: ({ at }) => { if (playing) replayer.play(at); else replayer?.pause(at); },
    speed: ({ speed }) => replayer?.setConfig({ speed }),
  };

  addEventListener("message", ({ source, origin, data }) => {
    if (source !== parent || origin !== location.origin || !Object.hasOwn(orders, data?.order)) return;
    try {
      orders[data.order](data);
    } catch (error) {
      tell({ told: "failed", why: String(error).slice(0, 200) });
    }
  });
  addEventListener("resize", fit);

  function look() {
    if (playing) tell({ told: "time", at: replayer.getCurrentTime() });
    requestAnimationFrame(look);
  }
  look();
})();
