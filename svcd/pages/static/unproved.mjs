// Of proofs that prove nothing.

/** A proof does not prove what it claims; the message is one sentence, in English, that says why. */
export class Unproved extends Error {}
