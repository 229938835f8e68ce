"use strict";

// Renders /openapi.json and lets its calls be tried. Everything comes from this server.

const byId = (id) => document.getElementById(id);

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key in made && key !== "list") made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function resolve(schema, api) {
  if (!schema || !schema.$ref) return schema || {};
  return api.components.schemas[schema.$ref.split("/").pop()] || {};
}

// An example of a value, as small as its schema allows.
function example(schema, api, depth = 0) {
  const known = resolve(schema, api);
  if (depth > 6) return null;
  if ("default" in known && known.default !== null) return known.default;
  if (known.enum) return known.enum[0];
  const choices = known.anyOf || known.oneOf;
  if (choices) return example(choices.find((each) => each.type !== "null") || {}, api, depth + 1);
  switch (known.type) {
    case "object": {
      const made = {};
      const wanted = new Set(known.required || []);
      for (const [key, value] of Object.entries(known.properties || {})) {
        if (wanted.has(key) || key === "key" || key === "value") {
          made[key] = example(value, api, depth + 1);
        }
      }
      return made;
    }
    case "array": return [example(known.items, api, depth + 1)];
    case "integer": case "number": return known.minimum || 0;
    case "boolean": return false;
    case "string": return "text";
    default: return "text";
  }
}

function describeType(schema, api) {
  const known = schema || {};
  if (known.$ref) return known.$ref.split("/").pop();
  if (known.enum) return known.enum.join(" | ");
  if (known.anyOf) return known.anyOf.map((each) => describeType(each, api)).join(" | ");
  if (known.type === "array") return `${describeType(known.items, api)}[]`;
  return known.type || "any";
}

function parameterRows(operation, api, inputs) {
  return (operation.parameters || []).map((parameter) => {
    const input = element("input", { placeholder: String(parameter.schema.default ?? "") });
    input.setAttribute("aria-label", parameter.name);
    inputs.push([parameter, input]);
    return element("tr", {},
      element("td", {}, element("code", { textContent: parameter.name })),
      element("td", { textContent: `${parameter.in}, ${describeType(parameter.schema, api)}` }),
      element("td", { textContent: parameter.description || "" }),
      element("td", {}, input));
  });
}

function requestFor(method, path, inputs, type, body) {
  let target = path;
  const query = new URLSearchParams();
  const headers = {};
  for (const [parameter, input] of inputs) {
    if (!input.value) continue;
    if (parameter.in === "path") {
      target = target.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
    } else if (parameter.in === "query") query.set(parameter.name, input.value);
    else headers[parameter.name] = input.value;
  }
  if (body !== undefined && body !== "") headers["Content-Type"] = type;
  const text = query.toString();
  const options = { method: method.toUpperCase(), headers };
  if (body !== undefined && body !== "" && method !== "get") options.body = body;
  return [text ? `${target}?${text}` : target, options];
}

// The answer; of a stream that does not end, what comes in the first seconds.
async function shown(address, options) {
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(), 5000);
  let text = "";
  try {
    const answer = await fetch(address, { ...options, signal: stop.signal });
    text = `${answer.status} ${answer.statusText}\n`;
    for (const name of ["content-type", "headrace-next-offset"]) {
      if (answer.headers.has(name)) text += `${name}: ${answer.headers.get(name)}\n`;
    }
    text += "\n";
    const reader = answer.body.getReader();
    const decoder = new TextDecoder();
    let body = "";
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        body += decoder.decode(value, { stream: true });
        if (body.length > 200000) { stop.abort(); break; }
      }
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    }
    try { body = JSON.stringify(JSON.parse(body), null, 2); } catch { /* not JSON: as it is */ }
    return text + body;
  } catch (error) {
    return `${text}${error}`;
  } finally {
    clearTimeout(timer);
  }
}

function tryArea(method, path, operation, api, inputs) {
  const area = element("div");
  let type, body;
  if (operation.requestBody) {
    const content = operation.requestBody.content;
    type = element("select", {}, ...Object.keys(content).map((name) => element("option", { textContent: name })));
    const sample = example(Object.values(content)[0].schema, api);
    body = element("textarea", { value: JSON.stringify(sample, null, 2) });
    body.setAttribute("aria-label", "body");
    area.append(element("p", {}, "Body, as ", type), body);
  }
  const answer = element("pre", { hidden: true });
  answer.className = "answer";
  const button = element("button", { textContent: "Try it", type: "button" });
  button.addEventListener("click", async () => {
    const [address, options] = requestFor(method, path, inputs, type && type.value, body && body.value);
    answer.hidden = false;
    answer.textContent = "…";
    answer.textContent = await shown(address, options);
  });
  area.append(element("p", {}, button), answer);
  return area;
}

function card(method, path, operation, api) {
  const inputs = [];
  const rows = parameterRows(operation, api, inputs);
  const inside = element("div", {}, element("p", { textContent: operation.summary }));
  if (rows.length) inside.append(element("table", {}, ...rows));
  inside.append(tryArea(method, path, operation, api, inputs));
  const answers = Object.entries(operation.responses).map(([status, answer]) => {
    const content = Object.values(answer.content || {})[0];
    return `${status}  ${answer.description}  ${content ? describeType(content.schema, api) : ""}`;
  });
  inside.append(element("details", {}, element("summary", { textContent: "Answers" }),
    element("pre", { textContent: answers.join("\n") })));
  const title = element("summary", {}, element("span", { className: `method ${method}`, textContent: method.toUpperCase() }),
    element("span", { className: "path", textContent: path }), " ",
    element("span", { className: "summary", textContent: operation.summary }));
  const made = element("details", { id: operation.operationId }, title, inside);
  made.dataset.words = `${method} ${path} ${operation.summary} ${operation.tags}`.toLowerCase();
  return made;
}

function render(api) {
  byId("about").replaceChildren(`${api.info.description} Version ${api.info.version}. `,
    element("a", { href: "/openapi.json", textContent: "OpenAPI document" }), ", ",
    element("a", { href: "/metrics", textContent: "metrics" }), ".");
  const sections = new Map();
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const tag = operation.tags[0];
      if (!sections.has(tag)) sections.set(tag, element("section", {}, element("h2", { textContent: tag })));
      sections.get(tag).append(card(method, path, operation, api));
    }
  }
  const shapes = element("section", {}, element("h2", { textContent: "Shapes" }));
  for (const [name, schema] of Object.entries(api.components.schemas)) {
    shapes.append(element("details", {}, element("summary", { textContent: name }),
      element("pre", { textContent: JSON.stringify(schema, null, 2) })));
  }
  byId("operations").replaceChildren(...sections.values(), shapes);
  document.body.dataset.ready = "yes";
}

byId("filter").addEventListener("input", (event) => {
  const word = event.target.value.toLowerCase();
  for (const each of document.querySelectorAll("#operations details[data-words]")) {
    each.hidden = !each.dataset.words.includes(word);
  }
});

let source = null;

function unwatch() {
  if (source) source.close();
  source = null;
  byId("unwatch").disabled = true;
  byId("watching").textContent = "";
}

byId("watch").addEventListener("submit", (event) => {
  event.preventDefault();
  unwatch();
  const form = event.target;
  const topic = encodeURIComponent(form.topic.value);
  byId("events").replaceChildren();
  source = new EventSource(`/topics/${topic}/stream?from=${form.from.value}`);
  byId("unwatch").disabled = false;
  source.onopen = () => { byId("watching").textContent = "connected"; };
  source.onmessage = (message) => {
    const line = element("li", { textContent: message.data });
    line.dataset.id = message.lastEventId;
    byId("events").prepend(line);
    while (byId("events").children.length > 500) byId("events").lastChild.remove();
  };
  source.onerror = () => { byId("watching").textContent = "not connected; trying again"; };
});
byId("unwatch").addEventListener("click", unwatch);

fetch("/openapi.json").then((answer) => answer.json()).then(render).catch((error) => {
  byId("about").textContent = `The description could not be loaded: ${error}`;
});
