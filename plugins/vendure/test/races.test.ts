import { Payment, TransactionalConnection } from '@vendure/core';
import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';

import { SvcPayCheck, SvcPayService } from '../src';
import { svcPay } from '../src/svc-pay';
import { Devnet, faucetKey, freePort, until } from './devnet';
import { Postgresql } from './postgresql';
import { Relay } from './relay';
import { AdminOrder, Buyer, openShop, PRICE, Shop } from './shop';

// On sql.js one transaction follows the other; here they meet.

const AMOUNT = 2_500_000_000n;
const CONFIRMATIONS = 1;
const AT_ONCE = 4;

let folder: string, node: Devnet, relay: Relay, postgresql: Postgresql, shop: Shop;
let faucet: Awaited<ReturnType<typeof faucetKey>>, merchant: string;

before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'vendure-'));
    // The user of PostgreSQL must get into it.
    chmodSync(folder, 0o755);
    node = new Devnet(folder, await freePort(), process.env.SVC ?? 'svc');
    postgresql = new Postgresql(join(folder, 'postgresql'));
    const [database] = await Promise.all([postgresql.start(), node.start()]);
    const { DEVNET, Key } = await svcPay();
    faucet = await faucetKey();
    merchant = await (await Key.fromSeed(new Uint8Array(32).fill(7))).address(DEVNET);
    relay = new Relay(await freePort(), node.url);
    await relay.start();
    const main = {
        url: relay.url,
        token: node.secret('manage-token'),
        signingSecret: node.secret('signing-secret'),
    };
    shop = await openShop({ folder, port: await freePort(), nodes: { main }, database });
    await shop.offer('coins', {
        node: 'main',
        recipient: merchant,
        confirmations: CONFIRMATIONS,
        minutesToPay: 30,
        currency: 'USD',
        rate: '0.50',
        rateMaxAge: 60,
    });
});

after(async () => {
    await shop?.close();
    await relay?.stop();
    await Promise.all([node?.stop(), postgresql?.stop()]);
    rmSync(folder, { recursive: true });
});

async function pay(reference: string): Promise<void> {
    const { Client, DEVNET } = await svcPay();
    const client = new Client(node.url);
    await client.broadcast(
        await client.sign(faucet, DEVNET, { recipient: merchant, amount: AMOUNT, reference }),
    );
}

async function begun(): Promise<{ buyer: Buyer; id: string; reference: string }> {
    const buyer = await shop.buyer();
    const { id, payments } = await buyer.begin();
    return { buyer, id, reference: payments[0]?.transactionId ?? '' };
}

const settled = (id: string) =>
    until('the payment', async () => {
        const order = await shop.order(id);
        return order.payments.every(payment => payment.state === 'Settled') && order;
    });

/** The changes of state of the payments of an order, as its history has them. */
const changes = ({ history }: AdminOrder) =>
    history.items
        .filter(item => item.type === 'ORDER_PAYMENT_TRANSITION')
        .map(({ data }) => (data as { to?: string }).to);

/** From now on no event of this payment comes. */
async function silence(reference: string): Promise<void> {
    const { Client } = await svcPay();
    const client = new Client(node.url, { token: node.secret('manage-token') });
    for (const watch of (await client.watches({ reference })).watches) await client.cancel(watch.id);
}

const stateOf = async (id: string) => (await shop.order(id)).payments[0]?.state;
const isFeed = (path: string) => path.startsWith('/rpc/commerce/feed/');

test('a run asks a node once, whatever the number of open orders', async () => {
    const checks = shop.server.app.get(SvcPayCheck);
    for (const more of [1, AT_ONCE]) {
        for (let number = 0; number < more; number++) await begun();
        await checks.checkAll();
        relay.paths.length = 0;
        assert.deepEqual(await checks.checkAll(), { asked: 0, failed: 0 });
        assert.deepEqual(relay.paths.map(isFeed), [true], relay.paths.join());
    }
});

test('events and the scheduled task at once change a payment once', async () => {
    const service = shop.server.app.get(SvcPayService);
    const checks = shop.server.app.get(SvcPayCheck);
    const { id, reference } = await begun();
    await pay(reference);
    const atOnce = () =>
        Promise.all([
            ...Array.from({ length: AT_ONCE }, () => service.lookUp('main', reference)),
            checks.checkAll(),
        ]);
    await atOnce();
    assert.equal((await shop.order(id)).state, 'PaymentAuthorized');
    await node.mine(CONFIRMATIONS);
    await atOnce();
    const order = await shop.order(id);
    assert.equal(order.state, 'PaymentSettled');
    assert.deepEqual(changes(order), ['AwaitingTransfer', 'Authorized', 'Settled']);
});

test('the worker settles what no event has told of, and sends the e-mail', async () => {
    const { id, reference } = await begun();
    await silence(reference);
    await pay(reference);
    await node.mine(CONFIRMATIONS);
    assert.equal((await shop.check()).failed, 0);
    const { code, state } = await shop.order(id);
    assert.equal(state, 'PaymentSettled');
    const mail = await until('an e-mail', () =>
        Promise.resolve(shop.mails().find(({ subject }) => subject.includes(code))),
    );
    assert.match(mail.body, /http:\/\/127\.0\.0\.1:\d+\/assets\//);
});

test('of two attempts that begin at once one is refused', async () => {
    const buyer = await shop.buyer();
    const answers = await Promise.all([buyer.begin(), buyer.begin(), buyer.begin()]);
    const refused = answers.filter(answer => /Nothing is left to pay/.test(answer.paymentErrorMessage ?? ''));
    assert.equal(refused.length, 2, JSON.stringify(answers));
    const id = answers.find(answer => answer.id !== undefined)?.id ?? '';
    const states = (await shop.order(id)).payments.map(payment => payment.state).sort();
    assert.deepEqual(states, ['AwaitingTransfer', 'Error', 'Error']);
});

test('a buyer goes back while the payment comes: the attempt is given up, or the order is placed', async () => {
    const service = shop.server.app.get(SvcPayService);
    const ends = new Set<string>();
    for (let round = 0; round < AT_ONCE; round++) {
        const { buyer, id, reference } = await begun();
        await pay(reference);
        await Promise.all([
            buyer
                .go('AddingItems')
                .catch((error: Error) => assert.match(error.message, /arrived|transition/)),
            service.lookUp('main', reference),
        ]);
        const { state, payments } = await shop.order(id);
        const end = `${payments[0]?.state} ${state}`;
        assert.ok(['Cancelled AddingItems', 'Authorized PaymentAuthorized'].includes(end), end);
        ends.add(end);
    }
    assert.ok(ends.size > 0);
});

test('refunds that are created and prepared at once are together not more than the payment', async () => {
    const service = shop.server.app.get(SvcPayService);
    const { id, reference } = await begun();
    await pay(reference);
    await node.mine(CONFIRMATIONS);
    const { payments } = await settled(id);
    await Promise.all(Array.from({ length: 3 }, () => shop.refund(payments[0]?.id ?? '', PRICE)));
    const payment = await shop.server.app
        .get(TransactionalConnection)
        .rawConnection.getRepository(Payment)
        .findOneOrFail({ where: { transactionId: reference }, relations: ['order'] });
    await Promise.all([1, 2, 3].map(() => service.prepareRefunds(payment.order.id)));
    const refunds = await until('the refunds', async () => {
        const now = (await shop.order(id)).payments[0]?.refunds ?? [];
        return now.every(refund => refund.state === 'Failed' || refund.metadata.svc) && now;
    });
    assert.equal(refunds.filter(refund => refund.metadata.svc).length, 1);
    assert.equal((await shop.notes(id)).filter(note => note.includes('SVC back')).length, 1);
});

test('of two workers that read the feed, only the first one says how far it was followed', async () => {
    const checks = shop.server.app.get(SvcPayCheck);
    const { id, reference } = await begun();
    await silence(reference);
    await checks.checkAll();
    const isHeld = relay.hold(isFeed);
    const slow = checks.checkAll();
    await isHeld;
    await pay(reference);
    await node.mine(CONFIRMATIONS);
    await checks.checkAll();
    assert.equal(await stateOf(id), 'Settled');
    // What the slow one reads has another block in the place of that with the payment, and no word of this.
    await node.reorganise(CONFIRMATIONS);
    relay.release();
    await slow;
    await checks.checkAll();
    assert.equal(await stateOf(id), 'Undone');
    await node.mine(CONFIRMATIONS);
    await checks.checkAll();
    assert.equal(await stateOf(id), 'Settled');
});

test('a worker that is killed has skipped nothing', async () => {
    const { id, reference } = await begun();
    await silence(reference);
    assert.equal((await shop.check()).failed, 0);
    await pay(reference);
    await node.mine(CONFIRMATIONS);
    const isHeld = relay.hold(path => path.includes(reference));
    const check = shop.check().catch(() => null);
    await isHeld;
    shop.worker?.kill('SIGKILL');
    relay.release();
    assert.equal(await stateOf(id), 'AwaitingTransfer');
    await shop.server.app.get(SvcPayCheck).checkAll();
    assert.equal(await stateOf(id), 'Settled');
    void check;
});
