// Reads a QR code with the camera: by the browser itself where it can, else by a reader that is loaded then.

import { loaded } from "./node.mjs";
import { message } from "./texts.mjs";
import { byId, onClick, tell } from "./wallet-dom.mjs";
import { Problem } from "./problem.mjs";

const EVERY = 250;

/** Whether the page shows the form for transfers. */
const isOpen = () => document.body.dataset.view === "send";

/** What finds codes in a video; a browser may have a detector that reads no QR codes.
 * @type {() => Promise<BarcodeDetector>} */
async function newDetector() {
  const formats = ["qr_code"];
  const own = "BarcodeDetector" in globalThis && (await BarcodeDetector.getSupportedFormats()).includes(formats[0]);
  if (own) return new BarcodeDetector({ formats });
  const { CodeDetector } = await loaded(import("./qr-reader.mjs"));
  return new CodeDetector({ formats });
}

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
    const detector = await newDetector();
    if (!isOpen()) return;
    const stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    this.#stream = stream;
    // The form may have been left while the browser asked.
    if (!isOpen()) return this.stop();
    const video = byId("scan-video", HTMLVideoElement);
    video.srcObject = stream;
    byId("scan").hidden = false;
    await video.play();
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
