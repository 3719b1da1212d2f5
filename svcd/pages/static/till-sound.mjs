// The sound of a payment: two short tones, made here.

/** @type {AudioContext | null} */
let context = null;

/** Be ready to sound; browsers allow it only from a click or a key on. */
export function wake() {
  context ??= typeof AudioContext === "undefined" ? null : new AudioContext();
  context?.resume().catch(() => {});
}

/** Sound, if the browser lets us. */
export function ring() {
  if (context === null) return;
  for (const [place, pitch] of [660, 990].entries()) {
    const [tone, volume] = [context.createOscillator(), context.createGain()];
    const begins = context.currentTime + 0.16 * place;
    tone.frequency.value = pitch;
    volume.gain.setValueAtTime(0.4, begins);
    volume.gain.exponentialRampToValueAtTime(0.001, begins + 0.3);
    tone.connect(volume).connect(context.destination);
    tone.start(begins);
    tone.stop(begins + 0.3);
  }
}
