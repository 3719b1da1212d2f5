// Says on the first page of the explorer that there are new blocks. It does not move what somebody is reading.

const FIRST_DELAY = 5000;
const LONGEST_DELAY = 60000;

/** Milliseconds until the next question. */
export function delayAfter(failures) {
  return Math.min(FIRST_DELAY * 2 ** Math.min(failures, 10), LONGEST_DELAY);
}

/** What to say when the page shows the chain up to `shown` and the node is at `height`; "" for nothing. */
export function newsOf(shown, height) {
  const count = height - shown;
  if (!(count > 0)) {
    return "";
  }
  return count === 1 ? "Show 1 new block" : `Show ${count} new blocks`;
}

function begin(news) {
  let failures = 0;
  let timer = null;
  const shown = Number(news.dataset.height);

  async function once() {
    try {
      const answer = await fetch("/rpc/status", { cache: "no-store" });
      const { status } = await answer.json();
      tell(newsOf(shown, Number(status.height)));
      failures = 0;
    } catch {
      failures += 1;
    }
    plan();
  }

  function tell(text) {
    let button = news.querySelector("a");
    if (!button && text) {
      button = document.createElement("a");
      button.className = "button small";
      button.href = "/";
      news.append(button);
    }
    if (button && button.textContent !== text) {
      button.textContent = text;
    }
  }

  function plan() {
    clearTimeout(timer);
    if (!document.hidden) {
      timer = setTimeout(once, delayAfter(failures));
    }
  }

  document.addEventListener("visibilitychange", plan);
  plan();
}

const news = globalThis.document?.querySelector(".news[data-height]");
if (news) {
  begin(news);
}
