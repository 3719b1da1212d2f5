import type { Journal } from "./index.js";

/** The journal of payouts in a folder of Node.js, with one small file for each entry; it is made if it is missing.
 *
 * Of all processes exactly one gets each place, without a lock that a killed process could leave behind. Each entry is
 * synced to the disk. Keep the folder on a local disk that has hard links.
 */
export class FileJournal implements Journal {
  constructor(folder: string);
  read(after: number): Promise<string[]>;
  append(sequence: number, entry: string): Promise<boolean>;
}
