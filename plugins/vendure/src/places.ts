import { Injectable } from '@nestjs/common';
import { Permission, SettingsStoreEntry, SettingsStoreFields, TransactionalConnection } from '@vendure/core';

import { Feed, Place } from './feed';
import { lockRows } from './lock';

const [NAMESPACE, NAME] = ['svcPay', 'feed'];
const KEY = `${NAMESPACE}.${NAME}`;
const scopeOf = ({ node, recipient }: Feed) => `${node}/${recipient}`;

/** Vendure removes entries of its store for settings that nothing declares. */
export const PLACE_FIELDS: SettingsStoreFields = {
    [NAMESPACE]: [{ name: NAME, readonly: true, requiresPermission: Permission.SuperAdmin }],
};

/**
 * @description
 * Up to where each feed was followed, in Vendure's store for settings, so that the plugin needs no table of its own.
 */
@Injectable()
export class Places {
    constructor(private connection: TransactionalConnection) {}

    async all(): Promise<Place[]> {
        const entries = await this.connection.rawConnection
            .getRepository(SettingsStoreEntry)
            .findBy({ key: KEY });
        return entries.map(entry => entry.value as Place);
    }

    /** Writes the next place; false if another worker was first, which may have heard something else. */
    async write(place: Place): Promise<boolean> {
        const where = { key: KEY, scope: scopeOf(place) };
        const before = place.turn - 1;
        return this.connection.withTransaction(async ctx => {
            const entries = this.connection.getRepository(ctx, SettingsStoreEntry);
            if (before === 0) {
                const first = new SettingsStoreEntry({ ...where, value: { ...place, turn: before } });
                await entries.createQueryBuilder().insert().values(first).orIgnore().execute();
            }
            const found = await entries.findOneBy(where);
            const [entry] =
                found === null
                    ? []
                    : await lockRows(this.connection, ctx, SettingsStoreEntry, 'id', found.id);
            if (entry === undefined || (entry.value as Place).turn !== before) return false;
            entry.value = place;
            await entries.save(entry, { reload: false });
            return true;
        });
    }

    async remove(feed: Feed): Promise<void> {
        await this.connection.rawConnection
            .getRepository(SettingsStoreEntry)
            .delete({ key: KEY, scope: scopeOf(feed) });
    }
}
