// Requests to the service, and its problems as texts.

export const root = document.body.dataset.root;

export class Problem extends Error {
  constructor(status, problems) {
    super(problems.map((one) => one.message).join("\n"));
    this.status = status;
    this.problems = problems;
  }
}

/** Send and return the Response; raises Problem where the service says no. */
export async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(root + path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, [{ field: "", expected: "", message: "The service does not answer. Is it still running?" }]);
  }
  if (response.ok) return response;
  let problems;
  try {
    problems = (await response.json()).detail;
  } catch {
    problems = [{ field: "", expected: "", message: `The service answered with an error (${response.status}).` }];
  }
  throw new Problem(response.status, problems);
}

export async function post(path, body, signal) {
  const headers = { "content-type": "application/json" };
  const response = await ask(path, { method: "POST", headers, body: JSON.stringify(body), signal });
  return response.json();
}

export function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Show problems in a box of class "problem"; null hides it. */
export function showProblem(box, error, title = "That cannot be answered") {
  box.hidden = !error;
  box.replaceChildren();
  if (!error) return;
  const heading = document.createElement("h2");
  heading.textContent = title;
  const list = document.createElement("ul");
  const problems = error.problems ?? [{ message: String(error.message ?? error) }];
  for (const one of problems) {
    const item = document.createElement("li");
    item.textContent = one.message;
    list.append(item);
  }
  box.append(heading, list);
}
