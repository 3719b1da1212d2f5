import { ID, RequestContext, TransactionalConnection, Type, VendureEntity } from '@vendure/core';
import { LockNotSupportedOnGivenDriverError } from 'typeorm';

/**
 * @description
 * The rows in which a column has an id, which no other transaction can change until that of the context ends.
 * Whoever locks payments and their order locks the payments first, so that no two wait for each other.
 */
export async function lockRows<T extends VendureEntity>(
    connection: TransactionalConnection,
    ctx: RequestContext,
    entity: Type<T>,
    column: 'id' | 'order',
    id: ID,
): Promise<T[]> {
    const rows = () =>
        connection
            .getRepository(ctx, entity)
            .createQueryBuilder('kept')
            .where(`kept.${column} = :id`, { id });
    try {
        return await rows().orderBy('kept.id').setLock('pessimistic_write').getMany();
    } catch (error) {
        // SQLite, in which one transaction writes at a time anyway.
        if (!(error instanceof LockNotSupportedOnGivenDriverError)) throw error;
        return rows().getMany();
    }
}
