// Reads a QR code with the camera, in browsers that can (BarcodeDetector).

import { message } from "./texts.mjs";
import { byId, onClick, tell } from "./wallet-dom.mjs";
import { Problem } from "./problem.mjs";

const EVERY = 250;

/** Whether the page shows the form for transfers. */
const isOpen = () => document.body.dataset.view === "send";

/** The camera of the form for transfers. */
export class Scanning {
  #found;
  /** @type {MediaStream | null} */
  #stream = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer = undefined;

  /** `found` gets the text of a code that was read.
   * @param {(text: string) => void} found */
  constructor(found) {
    this.#found = found;
    onClick(byId("scan-stop"), () => this.stop());
  }

  /** Switch the camera off. */
  stop() {
    clearTimeout(this.#timer);
    this.#stream?.getTracks().forEach((track) => track.stop());
    this.#stream = null;
    byId("scan-video", HTMLVideoElement).srcObject = null;
    byId("scan").hidden = true;
  }

  /** Switch the camera on, and look for a code; says on the page what is in the way.
   * @type {() => Promise<void>} */
  async start() {
    try {
      await this.#read();
    } catch (cause) {
      this.#fail(cause);
    }
  }

  async #read() {
    // The form may have been left while this was loaded.
    if (!isOpen()) return;
    this.stop();
    tell(byId("scan-error"), null);
    const stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    this.#stream = stream;
    // The form may have been left while the browser asked.
    if (!isOpen()) return this.stop();
    const video = byId("scan-video", HTMLVideoElement);
    video.srcObject = stream;
    byId("scan").hidden = false;
    await video.play();
    const detector = new BarcodeDetector({ formats: ["qr_code"] });
    /** @type {() => Promise<void>} */
    const look = async () => {
      const codes = await detector.detect(video);
      if (this.#stream !== stream) return;
      if (codes.length === 0) {
        this.#timer = setTimeout(() => look().catch((problem) => this.#fail(problem)), EVERY);
        return;
      }
      this.stop();
      this.#found(codes[0].rawValue);
    };
    await look();
  }

  /** @type {(cause: unknown) => void} */
  #fail(cause) {
    this.stop();
    const refused = cause instanceof DOMException;
    tell(byId("scan-error"), refused ? new Problem("camera", message("wallet-script.camera")) : cause);
  }
}
