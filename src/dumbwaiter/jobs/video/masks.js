// Covers elements with solid boxes: what appears, moves or is scrolled is covered in the frame in which it does. A box that was placed over an
// element would have to follow it; so the element itself is painted as one, by declarations on it, which win over whatever the page says.
// Style rules in every document and shadow root do the same for what is drawn in it.
"use strict";
const Masks = (() => {
  // Three things hide the content, each alone would do: the element and all that is drawn in it becomes one colour, cut off at its
  // edges; what inherits a colour becomes transparent; what is inside is hidden. Being `important`, in a layer, they win over the page's own rules.
  const BOX = `
    background: #333 !important;
    filter: brightness(0) invert(0.2) !important;
    clip-path: inset(0) !important;
    mask: none !important;
    -webkit-mask-box-image: none !important;
    -webkit-text-stroke: 0 transparent !important;
    text-emphasis: none !important;
    text-decoration: none !important;
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
      `${it}::selection, ${it} *::selection { color: transparent !important; background: transparent !important; text-shadow: none !important }`,
    ];
  }

  const declarations = BOX.trim().split(";").filter(Boolean).map((one) => {
    const [name, ...value] = one.split(":");
    return [name.trim(), value.join(":").replace("!important", "").trim()];
  });
  let all = [];
  let unseen = [];

  // A closed list shows the option that is chosen.
  const painted = (element) => (element.localName === "option" && element.closest("select")) || element;

  function paint(element) {
    const { style, ownerDocument } = element;
    if (!style || !ownerDocument.defaultView) return;
    for (const [name, value] of declarations) style.setProperty(name, value, "important");
    // a background is not drawn there, so there it goes without a box
    if (element.ownerSVGElement) style.setProperty("opacity", "0", "important");
    // without a box there is nothing to paint: what is in it would be seen
    if (ownerDocument.defaultView.getComputedStyle(element).display === "contents") style.setProperty("display", "block", "important");
  }

  return {
    // From here on these are covered.
    take(selectors) {
      all = selectors;
      unseen = [...selectors];
    },

    // Covers what is there, whatever the recording has changed of it.
    cover(scopes) {
      for (const selector of all) {
        for (const scope of scopes) {
          const found = scope.querySelectorAll(selector);
          if (found.length) unseen = unseen.filter((one) => one !== selector);
          for (const element of found) paint(painted(element));
        }
      }
    },

    // Those that have covered nothing so far.
    unseen: () => unseen,

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
