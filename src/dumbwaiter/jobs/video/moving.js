// What moves by itself follows the recording's clock: animations in SVG, animated pictures (GIF, APNG, WebP, AVIF) and videos, if they are
// inside the recording. The browser's own clocks for these cannot be set, so the places that show a film are given its stills.
"use strict";
const Moving = (() => {
  const BRING_MS = 6000;
  const IN_STYLE = /url\(\s*(?:"(data:image\/[^"]*)"|'(data:image\/[^']*)'|(data:image\/[^\s"')]*))\s*\)/gi;
  const ELSEWHERE =
    'source[srcset^="data:image/"], img[srcset^="data:image/"], input[src^="data:image/"], ' +
    'video[poster^="data:image/"], [background^="data:image/"]';
  const XLINK = "http://www.w3.org/1999/xlink";

  const films = new Map(); // by address; null for what stands still anyway
  const shown = new Map(); // per film that is on the page: its places, and which still they show
  const known = new WeakMap(); // per element: the address it was found with, its film, and the address it was given
  const looked = new WeakSet(); // elements that were warned of, or need not be
  const styled = []; // films that style sheets show, by number of their custom property
  const sheets = new Map(); // by document, with those properties
  const drawings = new Map(); // outermost svg elements of the page that have animations, with when they were first seen
  const said = new Set();
  let tell = () => {};
  let now = 0;
  let waiting = false;

  function warn(text) {
    if (!said.has(text)) tell(text);
    said.add(text);
  }

  function filmOf(address) {
    if (!address || !address.startsWith("data:image/")) return null;
    if (!films.has(address)) films.set(address, newFilm(address, Films.kindOf(address)));
    return films.get(address);
  }

  function newFilm(address, kind) {
    try {
      if (!kind) return null;
      if (kind === "image/svg+xml") return Drawings.of(address, warn);
      if (typeof ImageDecoder !== "undefined") return new Films.Animation(address, kind);
      warn("animated pictures do not follow the recording: this browser cannot take them apart");
    } catch (error) {
      warn(`an animated picture stands still: ${String(error).slice(0, 200)}`);
    }
    return null;
  }

  // --- places: elements ---

  // `srcset` comes before `src`, which stays as the page's style rules, and masks, know it. Whether the picture is there at once.
  function give(element, still) {
    known.get(element).given = still;
    if (element.localName === "img") element.srcset = still;
    else element.setAttribute(element.localName === "video" ? "poster" : "href", still);
    return element.localName === "img" && element.complete;
  }

  function place(film, time) {
    if (!shown.has(film)) {
      shown.set(film, { elements: new Set(), key: undefined, stopped: false, seen: true });
      film.start = time;
    }
    const places = shown.get(film);
    places.seen = true;
    return places;
  }

  function settle(element, address, film, time) {
    const before = known.get(element);
    if (before && before.film === film && before.address === address) {
      if (film) place(film, time).elements.add(element);
      return;
    }
    if (before && before.given && element.localName === "img") element.removeAttribute("srcset");
    known.set(element, { address, film });
    if (!film) return;
    const { elements, key } = place(film, time);
    elements.add(element);
    if (key !== undefined && film.still(key)) give(element, film.still(key));
  }

  function findPicture(image, time) {
    const address = image.getAttribute("src");
    const before = known.get(image);
    if (before && before.address === address) return settle(image, address, before.film, time);
    const others = image.hasAttribute("srcset") && !(before && before.given);
    settle(image, address, others ? null : filmOf(address), time);
  }

  function findSvgPicture(image, time) {
    const before = known.get(image);
    const address = image.getAttribute("href") ?? image.getAttributeNS(XLINK, "href");
    if (before && (address === before.address || address === before.given)) return settle(image, before.address, before.film, time);
    settle(image, address, filmOf(address), time);
  }

  function findVideo(video, time, stateOf) {
    const before = known.get(video);
    const sources = [video, ...video.querySelectorAll("source")].filter((source) => /^data:/i.test(source.getAttribute("src") || ""));
    if (!sources.length) return before && settle(video, before.address, before.film, time);
    const address = sources[0].getAttribute("src");
    // the page's own would play in real time
    for (const source of sources) source.removeAttribute("src");
    video.load();
    settle(video, address, new Films.Video(address, () => stateOf(video), warn), time);
  }

  function findDrawing(animation, time) {
    let svg = animation.ownerSVGElement;
    while (svg && svg.ownerSVGElement) svg = svg.ownerSVGElement;
    if (!svg || drawings.has(svg)) return;
    Drawings.hold(svg);
    drawings.set(svg, time);
  }

  function findOther(element) {
    if (looked.has(element) || (known.get(element) || {}).given) return;
    looked.add(element);
    const attributes = ["srcset", "src", "poster", "background"].map((name) => element.getAttribute(name));
    const kind = Films.kindOf(attributes.find((value) => /^data:image\//.test(value)));
    if (kind && kind !== "image/svg+xml") warn(`a picture that may be animated does not follow the recording, in an element <${element.localName}>`);
  }

  // It runs by a clock of the browser that nobody can set.
  function stop(marquee) {
    if (looked.has(marquee)) return;
    looked.add(marquee);
    marquee.stop();
    warn("a <marquee> stands still");
  }

  // --- places: style sheets. There the address is a custom property of the document, which changes ---

  function property(number) {
    return `--dumbwaiter-moving-${number}`;
  }

  function setProperty(sheet, number, address) {
    sheet.cssRules[0].style.setProperty(property(number), `url("${address}")`);
  }

  function restyle(css) {
    return css.replace(IN_STYLE, (whole, double, single, bare) => {
      const address = (double || single || bare).replace(/\\([^0-9a-f])/gi, "$1");
      const film = filmOf(address);
      if (!film) return whole;
      let number = styled.findIndex((one) => one.film === film);
      if (number < 0) number = styled.push({ film, address: address.replaceAll('"', "%22") }) - 1;
      return `var(${property(number)})`;
    });
  }

  function sheetOf(page) {
    if (!sheets.has(page)) {
      const sheet = new page.defaultView.CSSStyleSheet();
      sheet.replaceSync(":root {}");
      styled.forEach(({ film, address }, number) => {
        const places = shown.get(film);
        setProperty(sheet, number, (places && places.key !== undefined && film.still(places.key)) || address);
      });
      sheets.set(page, sheet);
    }
    return sheets.get(page);
  }

  function dress(scopes) {
    for (const page of sheets.keys()) if (!page.defaultView) sheets.delete(page);
    for (const page of scopes) {
      if (!page.defaultView || page.adoptedStyleSheets.includes(sheetOf(page))) continue;
      page.adoptedStyleSheets = [sheetOf(page), ...page.adoptedStyleSheets];
    }
  }

  // Gives all places of a film a still: whether all pictures are there at once.
  function show(film, places, key) {
    places.key = key;
    let there = true;
    for (const element of places.elements) there = give(element, film.still(key)) && there;
    const number = styled.findIndex((one) => one.film === film);
    if (number >= 0) for (const sheet of sheets.values()) setProperty(sheet, number, film.still(key));
    return there;
  }

  return {
    // The events of a recording, with what style sheets show of moving pictures put into our hands. What is no style stays as it is.
    read(text, onWarning) {
      tell = onWarning;
      if (!/url\([^)]{0,9}data:image\//i.test(text)) return JSON.parse(text);
      return JSON.parse(text, function (key, value) {
        if (typeof value !== "string" || !value.includes("data:image/") || !/url\(/i.test(value)) return value;
        if (key === "textContent" && !this.isStyle) return value;
        return key === "value" && !("property" in this) ? value : restyle(value);
      });
    },

    // Looks through pages that may have changed.
    find(scopes, time, stateOf) {
      for (const places of shown.values()) places.seen = false;
      for (const svg of drawings.keys()) if (!svg.isConnected) drawings.delete(svg);
      for (const scope of scopes) {
        for (const image of scope.querySelectorAll("img")) findPicture(image, time);
        for (const image of scope.querySelectorAll("svg image")) findSvgPicture(image, time);
        for (const video of scope.querySelectorAll("video")) findVideo(video, time, stateOf);
        for (const animation of scope.querySelectorAll(Drawings.ANIMATIONS)) findDrawing(animation, time);
        for (const element of scope.querySelectorAll(ELSEWHERE)) findOther(element);
        for (const marquee of scope.querySelectorAll("marquee")) stop(marquee);
      }
      for (const { film } of styled) {
        place(film, time);
        film.start = 0;
      }
      if (styled.length) dress(scopes);
      for (const [film, places] of shown) {
        if (!places.seen) shown.delete(film); // it begins anew when it is there again
        for (const element of places.elements) if (!element.isConnected || known.get(element).film !== film) places.elements.delete(element);
      }
    },

    // Shows what is due: 2 if that is to be made or loaded first, 1 if something moved, else 0.
    follow(time) {
      now = time;
      waiting = false;
      let moved = 0;
      for (const [svg, start] of drawings) {
        svg.setCurrentTime(Math.max(0, time - start) / 1000);
        if (svg.checkVisibility()) moved = 1;
      }
      for (const [film, places] of shown) {
        const key = places.stopped ? places.key : film.due(time);
        if (key === places.key) continue;
        if (!film.still(key)) waiting = true;
        else moved = Math.max(moved, show(film, places, key) ? 1 : 2);
      }
      return waiting ? 2 : moved;
    },

    waiting: () => waiting,

    // Makes what is due, in real time.
    async bring(sleep) {
      if (!waiting) return;
      const late = sleep(BRING_MS).then(() => "late");
      for (const [film, places] of shown) {
        const key = places.stopped ? places.key : film.due(now);
        if (key === places.key || film.still(key)) continue;
        const outcome = await Promise.race([film.bring(now, sleep).catch(() => "broken"), late]);
        const due = film.due(now);
        if (due !== undefined && film.still(due)) show(film, places, due);
        else places.stopped = due !== undefined;
        if (outcome) warn(`a moving picture stands still from where taking it apart ${outcome === "late" ? "took too long" : "failed"}`);
      }
      waiting = false;
    },
  };
})();
