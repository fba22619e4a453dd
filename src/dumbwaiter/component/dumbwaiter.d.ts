/** Types of `dumbwaiter.js` and `dumbwaiter-list.js`. */

export type DisplayState = "none" | "working" | "ready" | "retry";
export type Phase = "queued" | "scheduled" | "retrying" | "running" | "cancelling" | "success" | "failed" | "cancelled";

/** A task as `GET /tasks/{id}` tells it. Times are ISO 8601 in UTC. */
export interface TaskView {
  task_id: string;
  task_type: string;
  status: "pending" | "running" | "success" | "failed" | "cancelled";
  phase: Phase;
  display: DisplayState;
  /** 0…100 */
  progress_percentage: number;
  current_step: string | null;
  steps: { name: string; weight: number; state: "done" | "current" | "waiting" }[];
  message: string | null;
  attempt: number;
  max_attempts: number;
  retry_at: string | null;
  estimated_remaining_seconds: number | null;
  estimated_remaining_range: [number, number] | null;
  /** 1 is the next. */
  queue_position: number | null;
  queue_position_is_lower_bound: boolean;
  expected_start_at: string | null;
  result: unknown;
  result_url: string | null;
  files: { name: string; size: number; content_type: string; url: string; expires_at: string | null }[];
  expired_files: number;
  user_message: string | null;
  created_at: string;
  run_at: string;
  started_at: string | null;
  finished_at: string | null;
  links: Record<"self" | "progress" | "events" | "cancel" | "retry", string>;
}

export type Headers = Record<string, string>;
/** Texts by their names; `{n}`, `{m}`, `{time}`, `{when}`, `{why}`, `{what}`, `{low}`, `{high}` are filled in. */
export type Texts = Partial<Record<
  | "make" | "again" | "cancel" | "download" | "choose" | "uploading" | "queued" | "next" | "ahead" | "aheadMany" | "starts"
  | "scheduled" | "retrying" | "running" | "cancelling" | "ready" | "done" | "failed" | "cancelled" | "expired" | "gone" | "attempt" | "left"
  | "leftSoon" | "leftRange" | "soon" | "until" | "offline" | "unreachable" | "signIn" | "nowhere" | "notAsked" | "tooMany" | "empty" | "list",
  string
>>;

/** Texts by language; `setTexts` changes them. */
export const TEXTS: Record<string, Texts>;
export function setTexts(language: string, texts: Texts): void;

interface Shared extends HTMLElement {
  /** Where the task routes are; "/tasks". */
  endpoint: string;
  /** As fetch takes it; "same-origin". */
  credentials: RequestCredentials;
  /** Sent with everything that changes something, in the header `csrfHeader` ("X-CSRF-Token"). */
  csrfToken: string;
  csrfHeader: string;
  /** The word on the button that makes; of a list, what it is called. */
  label: string;
  /** What it is called, for screen readers; otherwise the label. */
  ariaLabel: string | null;
  headers: Headers | (() => Headers);
  texts: Texts | (() => Texts);
  /** Ask the server how it stands. */
  refresh(): Promise<void>;
}

export interface DumbwaiterTask extends Shared {
  type: string;
  /** The business key. React and Vue keep `key` to themselves: there it is `businessKey`. */
  key: string;
  businessKey: string;
  /** One certain task, instead of the newest of a type and key. */
  taskId: string;
  arguments: Record<string, unknown> | (() => Record<string, unknown>);
  /** The argument that takes a file which the person chooses. */
  upload: string;
  /** What is uploaded at the next press; without it the button opens a choice of files. */
  file: File | null;
  /** Where uploads go; beside the endpoint. */
  uploads: string;
  /** What files may be chosen, as `<input accept>` has it. */
  accept: string;
  /** The task as the server last told it; may be set by a page that has it. */
  task: TaskView | null;
  /** Empty until the server has said. */
  readonly state: DisplayState | "";
  make(file?: File): Promise<TaskView | null>;
  cancel(): Promise<TaskView | null>;
}
export const DumbwaiterTask: { new (): DumbwaiterTask; prototype: DumbwaiterTask };

export interface DumbwaiterList extends Shared {
  limit: string;
  /** What a task is called, by its type. */
  names: Record<string, string> | (() => Record<string, string>);
  titleOf: ((task: TaskView) => string) | null;
  readonly tasks: TaskView[] | null;
}
export const DumbwaiterList: { new (): DumbwaiterList; prototype: DumbwaiterList };

/** All of them bubble, through shadow roots too. */
export interface DumbwaiterEvents {
  /** It looks different: `before` is undefined the first time. */
  "dumbwaiter-state": CustomEvent<{ state: DisplayState; before?: DisplayState; task: TaskView | null }>;
  /** News of the task: progress, too. */
  "dumbwaiter-task": CustomEvent<{ task: TaskView | null }>;
  /** Before it is asked for: `arguments` may be changed, and `preventDefault()` calls it off. */
  "dumbwaiter-make": CustomEvent<{ arguments: Record<string, unknown>; file?: File }>;
  /** A press came to nothing; `status` is 0 if nobody answered. */
  "dumbwaiter-error": CustomEvent<{ status: number; message: string; problem?: Record<string, unknown> }>;
  /** A list was read anew. */
  "dumbwaiter-list": CustomEvent<{ tasks: TaskView[] }>;
}

declare global {
  interface HTMLElementTagNameMap {
    "dumbwaiter-task": DumbwaiterTask;
    "dumbwaiter-list": DumbwaiterList;
  }
  interface HTMLElementEventMap extends DumbwaiterEvents {}
}
