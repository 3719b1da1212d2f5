import type { OrderRow, OrderStore, OrderUpdate } from "./index.js";

/** A store of open orders in a folder of Node.js, which is made if it is missing; all orders are in memory, too.
 *
 * Any number of programs of this computer can use the folder. Every update is synced to the disk, but that events were
 * told only once all of them were, or a hundred. Keep the folder on a local disk that has hard links.
 */
export class FileOrders implements OrderStore {
  constructor(folder: string);
  place(): Promise<string | null>;
  orders(references: readonly string[]): Promise<OrderRow[]>;
  affected(wanted: {
    height: number;
    now: number;
    above: number;
    after: string;
    limit: number;
  }): Promise<OrderRow[]>;
  events(limit: number): Promise<[number, string][]>;
  write(update: OrderUpdate): Promise<boolean>;
}
