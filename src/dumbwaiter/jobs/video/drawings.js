// SVG pictures that have animations. As a picture such a drawing has a clock of its own that nobody can set; laid out as a part of a page
// it has not. So it is laid out beside the page, set to the time that is due, and copied as it looks then, without its animations.
"use strict";
const Drawings = (() => {
  const LARGEST = 200_000; // characters
  const ANIMATIONS = "animate, animateTransform, animateMotion, animateColor, set";
  const MATRIX = ["a", "b", "c", "d", "e", "f"];
  const WITHOUT = "translate: none; rotate: none; scale: none; offset: none; transform-origin: 0 0; transform-box: view-box";

  // A page of its own, behind the same walls as the recorded one.
  function workbench() {
    let frame = document.querySelector("iframe.workbench");
    if (!frame) {
      frame = Object.assign(document.createElement("iframe"), { className: "workbench", sandbox: "allow-same-origin" });
      document.body.append(frame);
    }
    return frame.contentDocument;
  }

  function numbers(matrix) {
    return MATRIX.map((name) => matrix[name]).join(", ");
  }

  // An animated value that no style property has, as its attribute is written.
  function written(value) {
    if (value === undefined || value === null) return null;
    if (value.consolidate) return value.numberOfItems ? `matrix(${numbers(value.consolidate().matrix)})` : null;
    if (value.width !== undefined) return [value.x, value.y, value.width, value.height].join(" ");
    if (value.valueAsString !== undefined) return value.valueAsString;
    if (typeof value !== "object") return String(value);
    const items = value.length === undefined ? [] : [...value];
    return items.map((item) => item.valueAsString ?? item.value ?? `${item.x},${item.y}`).join(" ") || null;
  }

  // Gives the copy of an element the value that one of its properties or attributes has now.
  function hold(element, copy, name) {
    if (name === "transform" && element.getCTM && element.parentNode.getCTM) {
      const [whole, around] = [element.getCTM(), element.parentNode.getCTM()];
      if (whole && around) copy.style.cssText += `; transform: matrix(${numbers(around.inverse().multiply(whole))}); ${WITHOUT}`;
      return;
    }
    const style = getComputedStyle(element).getPropertyValue(name);
    if (style) return void copy.style.setProperty(name, style, "important");
    const value = written(element[name] && element[name].animVal);
    if (value !== null) copy.setAttribute(name, value);
  }

  function copyOf(svg) {
    const copy = svg.cloneNode(true);
    const stills = [copy, ...copy.querySelectorAll("*")];
    const copies = new Map([svg, ...svg.querySelectorAll("*")].map((element, index) => [element, stills[index]]));
    for (const animation of svg.querySelectorAll(ANIMATIONS)) {
      const target = animation.targetElement;
      const name = animation.localName === "animateMotion" ? "transform" : animation.getAttribute("attributeName");
      if (copies.has(target) && name) hold(target, copies.get(target), name);
    }
    for (const { effect } of svg.getAnimations({ subtree: true })) {
      if (!copies.has(effect.target) || effect.pseudoElement) continue;
      for (const name of new Set(effect.getKeyframes().flatMap(Object.keys))) {
        hold(effect.target, copies.get(effect.target), name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`));
      }
    }
    for (const animation of copy.querySelectorAll(ANIMATIONS)) animation.remove();
    const still = copy.ownerDocument.createElementNS(copy.namespaceURI, "style");
    still.textContent = "* { animation: none !important; transition: none !important }";
    copy.append(still);
    return copy;
  }

  class Drawing {
    start = null;

    constructor(root) {
      this.svg = workbench().importNode(root, true);
      const place = workbench().createElement("div");
      place.attachShadow({ mode: "open" }).append(this.svg); // its style rules are for itself
      workbench().body.append(place);
      this.svg.pauseAnimations();
    }

    due(time) {
      const moment = Math.max(0, time - this.start);
      this.svg.setCurrentTime(moment / 1000);
      for (const animation of this.svg.getAnimations({ subtree: true })) {
        animation.pause();
        animation.currentTime = moment;
      }
      return `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(copyOf(this.svg)))}`;
    }

    still(address) {
      return address;
    }

    async bring() {}
  }

  return {
    ANIMATIONS,

    // Stops the clock of an outermost svg element of a page; after this setCurrentTime() moves its animations.
    hold(svg) {
      // rrweb never ends the loading of its documents, and until then these clocks do not start; elsewhere they do, and stay so
      if (svg.ownerDocument.readyState === "loading") {
        const place = svg.ownerDocument.createComment("");
        svg.replaceWith(place);
        workbench().body.append(svg);
        place.replaceWith(svg);
      }
      svg.pauseAnimations();
    },

    // The film of an SVG picture; null if it has no animations.
    of(address, warn) {
      const text = new TextDecoder().decode(Films.contentOf(address));
      if (!/<(\w+:)?(animate|set\b)|@keyframes/i.test(text)) return null;
      if (text.length > LARGEST) {
        warn(`an animated SVG picture of ${text.length.toLocaleString("en")} characters does not follow the recording: it is too large`);
        return null;
      }
      const root = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
      return root.localName === "svg" ? new Drawing(root) : null;
    },
  };
})();
