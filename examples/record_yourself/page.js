import { DumbwaiterRecorder } from "./dumbwaiter-recorder.js";

const [add, dishes, finish, state, result] = ["add", "dishes", "finish", "state", "result"].map((id) => document.getElementById(id));
const task = result.querySelector("dumbwaiter-task"), video = result.querySelector("video");

// ---- The page itself ----

add.addEventListener("submit", (event) => {
  event.preventDefault();
  const label = document.createElement("label"), tick = Object.assign(document.createElement("input"), { type: "checkbox" });
  label.append(tick, ` ${add.elements.dish.value}`);
  const item = document.createElement("li");
  item.append(label);
  dishes.append(item);
  add.reset();
});

dishes.addEventListener("change", ({ target }) => target.closest("li").classList.toggle("served", target.checked));

// ---- Its recording, and the video of that ----

const WORDS = {
  recording: "Recording 正在录制",
  retrying: "The server does not answer; the recording goes on 服务器没有响应，仍在录制",
  limit: "The recording is as long as it may be 录制已达上限",
  ended: "The recording has ended 录制已结束",
};
const show = ({ state: now, reason }) => { state.textContent = WORDS[reason] ?? WORDS[now]; };

const recording = await DumbwaiterRecorder.start({ onState: show });
show(recording.news);
finish.disabled = false;

finish.addEventListener("click", async () => {
  finish.disabled = true;
  try {
    task.arguments = { recording: await recording.stop(), max_side: 1280 };
  } catch (error) {
    state.textContent = error.message;
    return;
  }
  result.hidden = false;
  await task.make();
});

task.addEventListener("dumbwaiter-state", ({ detail }) => {
  if (detail.state !== "ready") return;
  Object.assign(video, { src: detail.task.files[0].url, hidden: false });
});
