import {
    FulfillmentProcess,
    Injector,
    Order,
    OrderProcess,
    OrderState,
    Payment,
    PaymentProcess,
    TransactionalConnection,
} from '@vendure/core';
import { In } from 'typeorm';

import { lockRows } from './lock';
import { SvcPayService } from './svc-pay.service';
import { attemptOf, KnownState, refusal } from './terms';

declare module '@vendure/core' {
    interface PaymentStates {
        AwaitingTransfer: never;
        Undone: never;
    }
}

let connection: TransactionalConnection;
let service: SvcPayService;

/**
 * @description
 * A payment waits for its transfer, is authorized when the node has seen it, and settled when it is confirmed. A
 * reorganisation makes it `Undone`, until it is confirmed again.
 */
export const svcPayPaymentProcess: PaymentProcess<'AwaitingTransfer' | 'Undone'> = {
    transitions: {
        Created: { to: ['AwaitingTransfer'] },
        AwaitingTransfer: { to: ['Authorized', 'Settled', 'Cancelled'] },
        Settled: { to: ['Undone'] },
        Undone: { to: ['Settled', 'Cancelled'] },
    },
    onTransitionStart(_from, to, { payment }) {
        const attempt = attemptOf(payment);
        if (attempt !== undefined) return refusal(to as KnownState, attempt) ?? undefined;
        if (to === 'AwaitingTransfer' || to === 'Undone') return `Only payments in coins can be ${to}.`;
    },
};

const givesUp = (from: OrderState, to: OrderState) =>
    from === 'ArrangingPayment' && (to === 'AddingItems' || to === 'Cancelled');

/**
 * @description
 * A buyer who goes back from the payment to the cart gives up the attempt, because its amount is that of the cart
 * as it was.
 */
export const svcPayOrderProcess: OrderProcess<never> = {
    init(injector: Injector) {
        connection = injector.get(TransactionalConnection);
        service = injector.get(SvcPayService);
    },
    async onTransitionStart(from, to, { ctx, order }) {
        if (!givesUp(from, to)) return;
        // The node may be seeing the payment at this moment: only one of the two changes the order.
        await lockRows(connection, ctx, Payment, 'order', order.id);
        const [now] = await lockRows(connection, ctx, Order, 'id', order.id);
        if (now?.state !== from) return 'The payment of this order has just arrived.';
    },
    async onTransitionEnd(from, to, { ctx, order }) {
        if (!givesUp(from, to)) return;
        await service.giveUp(ctx, order.id);
    },
};

/**
 * @description
 * Nothing is shipped while the payment of an order is undone.
 */
export const svcPayFulfillmentProcess: FulfillmentProcess<never> = {
    init(injector: Injector) {
        connection = injector.get(TransactionalConnection);
    },
    async onTransitionStart(_from, to, { ctx, orders }) {
        if (to !== 'Shipped' && to !== 'Delivered') return;
        const undone = await connection.getRepository(ctx, Payment).count({
            where: { order: { id: In(orders.map(order => order.id)) }, state: 'Undone' },
        });
        if (undone > 0)
            return 'A reorganisation has undone the payment of this order: wait until it is settled again.';
    },
};
