// A journal in a folder of Node.js: the only module of this package that needs files.

import { randomUUID } from "node:crypto";
import { access, link, mkdir, open, readdir, readFile, unlink } from "node:fs/promises";
import { join } from "node:path";

import { JournalError } from "./errors.js";

const NAME = /^[0-9]{10}\.json$/;

/** A folder with one file for each entry, which is made if it is missing.
 *
 * An entry is written to a file of another name, synced to the disk and then linked under its number. The system makes
 * a link only where none is, so that of all processes exactly one gets each number; there is no lock that a killed
 * process could leave behind. Keep the folder on a local disk that has hard links.
 */
export class FileJournal {
  #folder;
  #what;

  /** `what` says in errors what the entries are. */
  constructor(folder, what = "payouts") {
    const named = typeof folder === "string" && folder !== "";
    if (!named) throw new JournalError(`give the path of a folder for the ${what}`);
    this.#folder = folder;
    this.#what = what;
  }

  #path(sequence) {
    return join(this.#folder, `${String(sequence).padStart(10, "0")}.json`);
  }

  async #durably(action) {
    try {
      return await action();
    } catch (error) {
      if (error instanceof JournalError) throw error;
      throw new JournalError(`the ${this.#what} in ${this.#folder} cannot be read or written: ${error.message}`);
    }
  }

  /** The entries after this number, in order. */
  async read(after) {
    return this.#durably(async () => {
      if (after === 0) await this.#check();
      const entries = [];
      for (;;) {
        const entry = await readFile(this.#path(after + entries.length + 1), "utf8").catch((error) => {
          if (error.code === "ENOENT") return null;
          throw error;
        });
        if (entry === null) break;
        entries.push(entry);
      }
      // The process that has linked an entry may have been killed before it synced the folder.
      if (entries.length > 0) await this.#sync();
      return entries;
    });
  }

  async #check() {
    const numbers = await this.#numbers();
    if ((numbers.at(-1) ?? 0) !== numbers.length) throw this.damaged("an entry is missing");
  }

  /** The error for entries that cannot be used, and why. */
  damaged(why) {
    return new JournalError(`the ${this.#what} in ${this.#folder} are damaged: ${why}`);
  }

  /** The numbers of the entries in the folder, which is made if it is missing. */
  async #numbers() {
    await mkdir(this.#folder, { recursive: true, mode: 0o700 });
    const names = (await readdir(this.#folder)).filter((name) => NAME.test(name));
    return names.map((name) => Number.parseInt(name, 10)).sort((one, other) => one - other);
  }

  /** The numbers of the entries, without a check that none is missing. */
  async numbers() {
    return this.#durably(() => this.#numbers());
  }

  /** Whether there is an entry under this number. */
  async has(sequence) {
    return this.#durably(() => this.#unlessMissing(access(this.#path(sequence))));
  }

  /** Remove an entry, if there is one. */
  async remove(sequence) {
    return this.#durably(() => this.#unlessMissing(unlink(this.#path(sequence))));
  }

  async #unlessMissing(work) {
    return work.then(
      () => true,
      (error) => {
        if (error.code === "ENOENT") return false;
        throw error;
      },
    );
  }

  /** Store an entry under this number; false if the number is taken. */
  async append(sequence, entry) {
    return this.#durably(async () => {
      const written = join(this.#folder, `${randomUUID()}.tmp`);
      try {
        const file = await open(written, "wx", 0o600);
        try {
          await file.writeFile(entry);
          await file.sync();
        } finally {
          await file.close();
        }
        await link(written, this.#path(sequence));
      } catch (error) {
        if (error.code !== "EEXIST") throw error;
        return false;
      } finally {
        await unlink(written);
      }
      await this.#sync();
      return true;
    });
  }

  async #sync() {
    const folder = await open(this.#folder, "r");
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
  }
}
