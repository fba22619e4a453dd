// Covers elements with solid boxes, by style rules for every document and shadow root of the page: what appears, moves or is scrolled is
// covered in the frame in which it does. A box that was placed over an element would have to follow it.
"use strict";
const Masks = (() => {
  // Three things hide the content, each alone would do: the element and all that is drawn in it becomes one colour, cut off at its
  // edges; what inherits a colour becomes transparent; what is inside is hidden. Being `important`, in a layer, they win over the page's own rules.
  const BOX = `
    background: #333 !important;
    filter: brightness(0) invert(0.2) !important;
    clip-path: inset(0) !important;
    mask: none !important;
    -webkit-box-reflect: none !important;
    mix-blend-mode: normal !important;
    color: transparent !important;
    -webkit-text-fill-color: transparent !important;
    text-shadow: none !important;
    caret-color: transparent !important;
    transition: none !important;
    animation: none !important;`;
  const HIDDEN = "visibility: hidden !important; transition: none !important; animation: none !important;";

  function rules(selector) {
    const it = `:is(${selector})`;
    // a background is not drawn inside an SVG picture, so there things go without a box
    return [
      `${it} { ${BOX} }`,
      `${it}::before, ${it}::after, ${it} *, ${it} *::before, ${it} *::after, svg ${it} { ${HIDDEN} }`,
    ];
  }

  return {
    // The first of these that is no selector of elements, or undefined. Python cannot parse CSS, the browser can.
    wrong(selectors) {
      const nothing = document.createDocumentFragment();
      const sheet = new CSSStyleSheet();
      return selectors.find((selector) => {
        try {
          nothing.querySelector(selector);
          nothing.querySelector(`:not(${selector})`); // no pseudo-elements
          for (const rule of rules(selector)) sheet.insertRule(rule); // nothing that swallows what follows it
          return false;
        } catch (error) {
          return true;
        }
      });
    },

    rules: (selectors) => selectors.flatMap(rules),
  };
})();
