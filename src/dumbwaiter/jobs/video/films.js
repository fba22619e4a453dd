// Films: what of a page moves by itself and can be shown as stills instead. Each names the still that is due at a time of the recording,
// makes it, and has it as an address. Which one is due depends on that time alone, so every run shows the same, wherever it begins.
"use strict";
const Films = (() => {
  // Browsers show a frame that asks for 10 ms or less for 100 ms.
  const HASTY_MS = 10;
  const UNHURRIED_MS = 100;
  const MOST_KEPT = 64 << 20; // characters of stills, of all pictures
  const HEAD = 4096;
  const SHORTEST_MS = 8; // no frame of a video is shorter
  const CHANGE_MS = 1000;
  const LOOK_MS = 2;

  // --- data: addresses ---

  function contentOf(address, most = Infinity) {
    const comma = address.indexOf(",");
    const text = unescape(address.slice(comma + 1, comma + 1 + most));
    const binary = /;\s*base64\s*$/i.test(address.slice(0, comma)) ? atob(text) : text;
    const bytes = new Uint8Array(binary.length);
    for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
    return bytes;
  }

  // The type of a picture that may be animated; null for one that is not.
  function kindOf(address) {
    if (/^data:image\/svg/i.test(address)) return "image/svg+xml";
    let head;
    try {
      head = String.fromCharCode(...contentOf(address, HEAD));
    } catch (error) {
      return null;
    }
    if (head.startsWith("GIF8")) return "image/gif";
    if (head.startsWith("\x89PNG")) {
      const [animation, picture] = [head.indexOf("acTL"), head.indexOf("IDAT")];
      return animation >= 0 || picture < 0 ? "image/png" : null;
    }
    if (head.startsWith("RIFF") && head.startsWith("WEBPVP8X", 8)) return head.charCodeAt(20) & 2 ? "image/webp" : null;
    return head.startsWith("ftypavis", 4) ? "image/avif" : null;
  }

  // --- stills ---

  function stillOf(source, width, height, type) {
    const canvas = Object.assign(document.createElement("canvas"), { width, height });
    canvas.getContext("2d").drawImage(source, 0, 0, width, height);
    return canvas.toDataURL(type, 0.95);
  }

  // A picture that was loaded once, and is kept, is there at once where it is asked for again.
  async function loaded(address) {
    const image = new Image();
    image.src = address;
    await image.decode().catch(() => {});
    return image;
  }

  // Stills of animated pictures, the oldest first; they are made again when they have gone.
  const kept = new Map();
  let characters = 0;

  function keep(film, index, address, image) {
    film.stills.set(index, address);
    kept.set([film, index, address.length], image);
    characters += address.length;
    for (const still of kept.keys()) {
      const [owner, number, length] = still;
      if (characters <= MOST_KEPT || (owner === film && number === index)) return;
      kept.delete(still);
      owner.stills.delete(number);
      characters -= length;
    }
  }

  // An animated picture. It is taken apart as far as its time has come: how long a frame lasts is known when it is decoded.
  class Animation {
    start = null; // when it was first there, in the recording's milliseconds
    stills = new Map();
    ends = []; // when each known frame ends, in milliseconds since the start
    count = Infinity;
    plays = Infinity;

    constructor(address, type) {
      this.opening = this.open(address, type).catch(() => this.cut());
    }

    async open(address, type) {
      this.decoder = new ImageDecoder({ data: contentOf(address), type });
      await Promise.all([this.decoder.completed, this.decoder.tracks.ready]);
      const track = this.decoder.tracks.selectedTrack;
      this.count = track.animated ? track.frameCount : 1;
      this.plays = track.repetitionCount + 1;
    }

    // What is broken shows what there is of it.
    cut() {
      this.count = this.ends.length;
    }

    // The frame that is due, or the first one of which it is not known how long it lasts; undefined for a picture that stands still.
    due(time) {
      if (this.count < 2) return undefined;
      let phase = Math.max(0, time - this.start) + 0.001;
      if (this.ends.length === this.count) {
        const length = this.ends[this.count - 1];
        if (phase >= length * this.plays) return this.count - 1;
        phase %= length;
      }
      const index = this.ends.findIndex((end) => phase < end);
      return index < 0 ? this.ends.length : index;
    }

    still(index) {
      return this.stills.get(index);
    }

    async bring(time) {
      await this.opening;
      for (let index = this.due(time); index !== undefined && !this.stills.has(index); index = this.due(time)) {
        const frame = await this.decoder.decode({ frameIndex: index }).catch(() => null);
        if (!frame) {
          if (index < this.ends.length) return;
          this.cut();
          continue;
        }
        const { image } = frame;
        if (index === this.ends.length) {
          const length = (image.duration || 0) / 1000;
          this.ends.push((this.ends[index - 1] || 0) + (length > HASTY_MS ? length : UNHURRIED_MS));
        }
        if (this.due(time) === index) {
          const address = stillOf(image, image.displayWidth, image.displayHeight, "image/png");
          keep(this, index, address, await loaded(address));
        }
        image.close();
      }
    }
  }

  function event(target, name) {
    return new Promise((done, failed) => {
      target.addEventListener(name, done, { once: true });
      target.addEventListener("error", failed, { once: true });
    });
  }

  // When the frame that would be drawn begins, in milliseconds of the video; NaN where the browser does not tell.
  function beginning(video) {
    try {
      const frame = new VideoFrame(video);
      frame.close();
      return frame.timestamp / 1000;
    } catch (error) {
      return NaN;
    }
  }

  // A video: a player of our own, off the page, is sent to the moment that is due. `state` tells how the recorded one is playing.
  class Video {
    start = null;
    single = false; // it has one frame, as far as can be told

    constructor(address, state, warn) {
      this.state = state;
      this.video = Object.assign(document.createElement("video"), { muted: true, preload: "auto", src: address });
      this.opening = event(this.video, "loadeddata").catch(() => {
        this.broken = true;
        warn("a video inside the recording is not shown: this browser cannot play it");
      });
    }

    // The moment of the video, in milliseconds.
    due(time) {
      if (this.broken) return undefined;
      const { playing, from, since, rate, loop } = this.state();
      const position = from + (playing ? (Math.max(0, time - (since ?? this.start)) / 1000) * rate : 0);
      const length = this.video.duration;
      if (!length) return Math.round(position * 1000);
      return Math.round((loop ? position % length : Math.min(position, length)) * 1000);
    }

    still(moment) {
      return this.moment === moment ? this.address : undefined;
    }

    async seek(moment) {
      const there = event(this.video, "seeked");
      this.video.currentTime = moment / 1000;
      await there;
    }

    // The word that it is there comes before its frame can be drawn: on a busy machine the one before would be. Whether that is the right
    // one nobody says; but coming from another frame it can be told.
    async comeFromElsewhere(moment, shown, sleep) {
      await this.seek(shown > 1 ? shown - 1 : Math.min(this.video.duration, 1) * 1000);
      const elsewhere = await this.change(shown, sleep);
      await this.seek(moment);
      if (elsewhere === shown) this.single = true;
      else await this.change(elsewhere, sleep);
    }

    // Waits for another frame than this one: the one that is shown.
    async change(before, sleep) {
      let shown = beginning(this.video);
      for (let waited = 0; shown === before && waited < CHANGE_MS; waited += LOOK_MS) {
        await sleep(LOOK_MS);
        shown = beginning(this.video);
      }
      return shown;
    }

    async bring(time, sleep) {
      await this.opening;
      const moment = this.due(time);
      if (moment === undefined || this.moment === moment) return;
      const before = beginning(this.video);
      await this.seek(moment);
      const same = beginning(this.video) === before && !(moment >= before && moment < before + SHORTEST_MS);
      if (same && !this.single) await this.comeFromElsewhere(moment, before, sleep);
      this.address = stillOf(this.video, this.video.videoWidth, this.video.videoHeight, "image/jpeg");
      this.loaded = await loaded(this.address);
      this.moment = moment;
    }
  }

  return { Animation, Video, contentOf, kindOf };
})();
