/**
 * <dumbwaiter-list>: the newest tasks of whoever looks, each with its button.
 *
 *   <script type="module" src="/dumbwaiter-list.js"></script>
 *   <dumbwaiter-list endpoint="/tasks" limit="10" names='{"video-export": "Video"}'></dumbwaiter-list>
 */

import { build, fill, kindOf, Line, moment, say, setTexts, Shared } from "./dumbwaiter.js";

setTexts("en", { empty: "Nothing yet", list: "Recent tasks" });
setTexts("zh", { empty: "暂无任务", list: "最近的任务" });

const style = new CSSStyleSheet();
style.replaceSync(`
.item { display: grid; grid-template-columns: minmax(8rem, 1fr) minmax(0, 2fr); gap: .4rem 1.2rem; padding: 1rem 0; border-block-end: 1px solid var(--_line); }
.item:last-child { border-block-end: 0; }
.name { font-weight: 600; overflow-wrap: anywhere; }
.time { display: block; font-weight: 400; }
@container (max-width: 30rem) { .item { grid-template-columns: 1fr; } }
`);

const EXPORTED = "root headline bar fill facts percent step left message trouble problem actions button make main again cancel download files entry file note";
const HANDED_ON = ["endpoint", "credentials", "csrf-token", "csrf-header"];

export class DumbwaiterList extends Shared {
  static plain = { ...super.plain, limit: "20" };
  static objects = [...super.objects, "names"];

  /** What a task is called, as a function of it; otherwise `names` says it for each type. */
  titleOf = null;

  tasks = null;
  items = new Map();  // task id -> its row
  worries = "";
  turn = 0;

  constructor() {
    super();
    this.shadowRoot.adoptedStyleSheets.push(style);
    this.rows = build("ul", "list");
    this.note = build("p", "note empty");
    this.shadowRoot.append(this.rows, this.note);
  }

  start() {
    this.line = Line.of(this);
    this.sound();
    this.draw();
    this.refresh();
  }

  rest() { clearTimeout(this.timer); }
  awake() { if (this.line) this.refresh(); }
  hear({ base }) { if (base === this.line?.base) this.refresh(); }

  /** Ask for the newest tasks; those that are under way are followed from then on. */
  async refresh() {
    clearTimeout(this.timer);
    if (this.flaw) return;
    const turn = ++this.turn;
    let tasks;
    try {
      ({ tasks } = await this.line.ask(`?limit=${encodeURIComponent(this.limit)}`));
      this.worries = "";
    } catch (error) {
      this.worries = kindOf(error);
      this.timer = setTimeout(() => this.refresh(), 10_000);
    }
    if (turn !== this.turn) return;
    if (tasks) this.tasks = tasks;
    this.draw();
    if (tasks) this.emit("list", { tasks });
  }

  draw() {
    const { words, language, tasks, items, rows } = this;
    rows.ariaLabel = this.called || words.list;
    say(this.note, this.flaw || (this.worries ? fill(words[this.worries], this.line) : tasks?.length === 0 ? words.empty : ""));
    const wanted = new Set(tasks?.map((task) => task.task_id));
    for (const [id, item] of items) if (!wanted.has(id)) { item.remove(); items.delete(id); }
    for (const [index, task] of (tasks ?? []).entries()) {
      const item = items.get(task.task_id) ?? this.item(task);
      items.set(task.task_id, item);
      this.name(item, language);
      // A row that stands where it should is not touched: moved, it would lose the focus.
      if (rows.children[index] !== item) rows.insertBefore(item, rows.children[index] ?? null);
    }
  }

  item(task) {
    const button = document.createElement("dumbwaiter-task");
    button.setAttribute("part", "task");
    button.setAttribute("exportparts", EXPORTED.replaceAll(" ", ","));
    for (const name of HANDED_ON) if (this.hasAttribute(name)) button.setAttribute(name, this.getAttribute(name));
    button.headers = () => this.headers;
    button.texts = () => this.texts;
    button.task = task;
    const item = build("li", "item", {}, build("span", "name", { dir: "auto" }, build("span", "title"), build("time", "time", { datetime: task.created_at })), button);
    button.addEventListener("dumbwaiter-task", ({ detail }) => {
      // Made again it is another task, and belongs on top.
      if (detail.task?.task_id !== task.task_id) this.refresh(); else this.name(item, this.language);
    });
    return item;
  }

  name(item, language) {
    const { task } = item.lastChild, [title, time] = item.firstChild.children;
    if (!task) return;
    say(title, String(this.titleOf?.(task) ?? this.names[task.task_type] ?? task.task_type));
    say(time, moment(task.created_at, language));
    item.lastChild.ariaLabel = title.textContent;
  }
}

DumbwaiterList.define("dumbwaiter-list");
