/* Reloads the page of an order when there is something new to show: the node answers as soon as the payment changes. */
"use strict";
(function () {
    const words = document.currentScript.dataset;
    const shown = document.querySelector("[data-svc-pay][data-open]");
    if (!shown) return;
    const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

    async function json(url) {
        const answer = await fetch(url, {cache: "no-store", credentials: "same-origin"});
        if (!answer.ok) throw new Error(String(answer.status));
        return answer.json();
    }

    /* Waits at the node until the payment is not as it is shown; without a public node this is a pause. */
    async function change() {
        const node = shown.dataset.nodeUrl;
        if (!node) return pause(4);
        const {payment} = await json(`${node}&wait=25&state=${shown.dataset.state}`);
        if (payment.state === shown.dataset.state && String(payment.confirmations) === shown.dataset.depth) return pause(1);
    }

    async function watch() {
        for (;;) {
            try {
                await change();
            } catch (error) {
                await pause(5);
            }
            try {
                const {state, confirmations, wrong, payment, order} = await json(shown.dataset.url);
                const same = state === shown.dataset.state && String(confirmations) === shown.dataset.depth &&
                    String(wrong) === shown.dataset.wrong;
                if (!same || order !== "n" || !["created", "pending"].includes(payment)) return location.reload();
                await pause(1);
            } catch (error) {
                await pause(5);
            }
        }
    }

    /* The time that is left, rounded down. */
    function count() {
        const until = shown.querySelector("[data-until]");
        if (!until) return;
        const left = Math.floor((new Date(until.dateTime) - Date.now()) / 1000);
        const two = (number) => String(number).padStart(2, "0");
        const time = left >= 3600
            ? `${Math.floor(left / 3600)}:${two(Math.floor(left / 60) % 60)}:${two(left % 60)}`
            : `${Math.floor(left / 60)}:${two(left % 60)}`;
        shown.querySelector("[data-left]").textContent = left > 0 ? `(${words.left.replace("{time}", time)})` : "";
        if (left > 0) setTimeout(count, 1000);
    }

    for (const button of navigator.clipboard ? shown.querySelectorAll("[data-copy]") : []) {
        button.hidden = false;
        button.addEventListener("click", async () => {
            await navigator.clipboard.writeText(button.dataset.copy);
            button.textContent = words.copied;
        });
    }

    count();
    watch();
})();
