// Formulas, which were made MathML when the page was written.

const formulas = new Map(); // source -> [tag, attributes, text or children]

function mathml([tag, attributes, content]) {
  const node = document.createElementNS("http://www.w3.org/1998/Math/MathML", tag);
  for (const [name, value] of Object.entries(attributes)) if (name !== "xmlns") node.setAttribute(name, value);
  node.append(...(typeof content === "string" ? [content] : content.map(mathml)));
  return node;
}

// `text` with its formulas drawn; what is none, or could not be drawn, stays as it was written.
function mathsOf(text) {
  const shown = [];
  let from = 0;
  for (const { 0: source, index: at } of text.matchAll(FORMULA)) {
    if (!formulas.has(source)) continue;
    const math = mathml(formulas.get(source));
    math.setAttribute("title", source);
    shown.push(text.slice(from, at), math);
    from = at + source.length;
  }
  return [...shown, text.slice(from)];
}
