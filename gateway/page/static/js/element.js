// Elements of the page. All text is set as text: no name from the cluster is ever read as markup.

export function element(tag, { className = "", text = "", parent = null } = {}) {
  const made = document.createElement(tag);
  if (className) {
    made.className = className;
  }
  if (text) {
    made.textContent = text;
  }
  parent?.append(made);
  return made;
}

export function setText(node, text) {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}

export function setClass(node, name) {
  if (node.className !== name) {
    node.className = name;
  }
}

export function setPart(node, property, value) {
  if (node.style.getPropertyValue(property) !== value) {
    node.style.setProperty(property, value);
  }
}
