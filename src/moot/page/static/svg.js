// Shapes, as h makes elements: whatever a file says comes in as text or as an attribute.

import { add } from "./dom.js";

export function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return add(node, children);
}
