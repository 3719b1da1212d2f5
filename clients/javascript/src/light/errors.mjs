// The errors of the checks in this folder; errors.js has the others of the package.

/** Every error of this package. */
export class SvcPayError extends Error {
  /** @param {string} message one sentence for a person, in English */
  constructor(message) {
    super(message);
    this.name = new.target.name;
  }
}

/** A proof does not prove the payment, the account or the chain; the message says why. */
export class InvalidProof extends SvcPayError {}

/** The answer is not one of a svcd node. */
export class InvalidAnswer extends SvcPayError {}
