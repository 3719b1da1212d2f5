import {
    EventBus,
    Payment,
    PaymentStateTransitionEvent,
    Refund,
    SettingsStoreEntry,
    TransactionalConnection,
} from '@vendure/core';
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { cpSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer, Server } from 'node:http';
import { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';

import { Attempt, PublicMetadata, SvcPayService } from '../src';
import { Place } from '../src/feed';
import { svcPay } from '../src/svc-pay';
import { Devnet, faucetKey, freePort, until } from './devnet';
import { Relay } from './relay';
import { Buyer, held, logged, openShop, PRICE, Shop, ShopOrder } from './shop';

const SVC = process.env.SVC ?? 'svc';
const AMOUNT = 2_500_000_000n; // 12.50 at 0.50 for a coin
const CONFIRMATIONS = 2;
const DAY = 86_400_000;
const NO_LONGER = 'This holds no longer: ';

type Key = Awaited<ReturnType<typeof faucetKey>>;

let folder: string, node: Devnet, relay: Relay, shop: Shop, port: number;
let faucet: Key, merchant: Key, merchantAddress: string, tokens: string[];
let rates: Server, rate: { coin: unknown };
const printed: string[] = [];

before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'vendure-'));
    node = new Devnet(folder, await freePort(), SVC);
    port = await freePort();
    const { DEVNET, Key } = await svcPay();
    faucet = await faucetKey();
    merchant = await Key.fromSeed(new Uint8Array(32).fill(7));
    merchantAddress = await merchant.address(DEVNET);
    await node.start();
    tokens = [node.secret('manage-token'), node.secret('signing-secret')];
    await node.faucet(merchantAddress, '1');
    await node.mine(1);
    relay = new Relay(await freePort(), node.url);
    await relay.start();
    const main = {
        url: relay.url,
        token: tokens[0] ?? '',
        signingSecret: tokens[1] ?? '',
        publicUrl: node.url,
    };
    const wrong = { ...main, token: 'x'.repeat(43) };
    const page = { ...main, url: `${relay.url}/explorer` };
    const closed = { ...main, publicUrl: `http://127.0.0.1:${await freePort()}` };
    shop = await openShop({ folder, port, nodes: { main, wrong, page, closed } });
    const settings = {
        node: 'main',
        recipient: merchantAddress,
        confirmations: CONFIRMATIONS,
        minutesToPay: 4,
        currency: 'USD',
        rate: '0.50',
        rateMaxAge: 60,
    };
    await shop.offer('coins', settings);
    await shop.offer('wrong', { ...settings, node: 'wrong' });
    await shop.offer('closed', { ...settings, node: 'closed' });
    await shop.offer('euro', { ...settings, currency: 'EUR' });
    await shop.offer('dear', {
        ...settings,
        rate: '',
        rateUrl: `${node.url}/rpc/status`,
        ratePath: 'status.none',
    });
    rate = { coin: '0.50' };
    rates = createServer((_request, answer) => answer.end(JSON.stringify({ data: [{ usd: rate.coin }] })));
    await new Promise<void>(done => rates.listen(0, '127.0.0.1', done));
    await shop.offer('live', {
        ...settings,
        rate: '',
        rateUrl: `http://127.0.0.1:${(rates.address() as AddressInfo).port}/`,
        ratePath: 'data.0.usd',
        rateMaxAge: 1,
    });
});

after(async () => {
    await shop?.close();
    await relay?.stop();
    await node?.stop();
    rates?.close();
    rmSync(folder, { recursive: true });
    const all = [...printed, ...logged].join('\n');
    for (const secret of tokens) assert.ok(!all.includes(secret), 'a secret is in an answer');
});

async function pay(
    reference: string,
    amount = AMOUNT,
    recipient = merchantAddress,
    key = faucet,
    url = node.url,
): Promise<void> {
    const { Client, DEVNET } = await svcPay();
    const client = new Client(url);
    await client.broadcast(await client.sign(key, DEVNET, { recipient, amount, reference }));
}

async function begun(
    channel?: string,
    method = 'coins',
): Promise<{ buyer: Buyer; order: ShopOrder; reference: string }> {
    const buyer = await shop.buyer(channel);
    const order = await buyer.begin(method);
    printed.push(JSON.stringify(order));
    assert.equal(order.state, 'ArrangingPayment', printed.at(-1));
    const [payment] = order.payments;
    assert.equal(payment?.state, 'AwaitingTransfer');
    assert.ok(payment);
    return { buyer, order, reference: payment.transactionId };
}

async function becomes(order: ShopOrder, payment: string, state?: string): Promise<void> {
    await until(`payment ${payment} of ${order.code}`, async () => {
        const now = await shop.order(order.id);
        printed.push(JSON.stringify(now));
        return (
            now.payments.some(each => each.state === payment) && (state === undefined || now.state === state)
        );
    });
}

const noted = (order: ShopOrder, ...words: string[]) =>
    until(`a note with ${words.join(', ')}`, async () =>
        (await shop.notes(order.id)).find(note => words.every(word => note.includes(word))),
    );

/** What the page to copy tells the buyer of an order. */
async function pageSays(buyer: Buyer, { code }: ShopOrder): Promise<string> {
    // From lib/test, where this file is compiled to.
    const page = pathToFileURL(join(__dirname, '../../example/sentences.mjs')).href;
    const { SENTENCES } = (await import(page)) as {
        SENTENCES: { [state: string]: (details: PublicMetadata) => string };
    };
    const [payment] = (await buyer.look(code)).payments;
    assert.ok(payment);
    return SENTENCES[payment.state]?.(payment.metadata.public) ?? '';
}

const check = () => shop.check();

/** From now on no event of this payment comes. */
async function silence(reference: string): Promise<void> {
    const { Client } = await svcPay();
    const client = new Client(node.url, { token: tokens[0] ?? '' });
    for (const { id } of (await client.watches({ reference })).watches) {
        await until('the deliveries', async () =>
            (await client.watch(id)).events?.every(each => each.deliveredAt !== null || each.superseded),
        );
        await client.cancel(id);
    }
}

/** An event of the node about a payment, as it is or not. */
async function eventOf(reference: string, state: string): Promise<object> {
    const { Client, DEVNET } = await svcPay();
    const client = new Client(node.url);
    const { order } = await client.paymentRequest({ recipient: merchantAddress, amount: AMOUNT, reference });
    const { tip, node: view, ...payment } = await client.payment(order);
    return {
        id: 'svcevt_1',
        event: `payment.${state}`,
        createdAt: String(Date.now()),
        networkId: DEVNET.networkId,
        chainId: DEVNET.chainId,
        genesisHash: DEVNET.genesisHash,
        subscriptionId: 'svcwh_1',
        epoch: 0,
        sequence: 1,
        initial: false,
        previousState: 'pending',
        payment: {
            ...payment,
            state,
            confirmations: CONFIRMATIONS,
            requiredConfirmations: CONFIRMATIONS,
            canonical: true,
        },
        tip,
        node: view,
    };
}

/** What the node would send, signed with a secret; the bytes may be changed on the way. */
async function send(
    body: object,
    secret = tokens[1] ?? '',
    name = 'main',
    at = Date.now(),
    change = (sent: string) => sent,
) {
    const text = JSON.stringify(body);
    const id = (JSON.parse(text) as { id: string }).id;
    const timestamp = String(Math.floor(at / 1000));
    const signature = createHmac('sha256', secret).update(`${id}.${timestamp}.${text}`).digest('base64');
    const headers = {
        'content-type': 'application/json',
        'webhook-id': id,
        'webhook-timestamp': timestamp,
        'webhook-signature': `v1,${signature}`,
    };
    const answer = await fetch(`http://127.0.0.1:${port}/svc-pay/webhook/${name}`, {
        method: 'POST',
        headers,
        body: change(text),
    });
    printed.push(await answer.text());
    return answer.status;
}

test('an order is paid, undone by a reorganisation, confirmed again, and refunded', async () => {
    const { buyer, order, reference } = await begun();
    const shown = (await buyer.look(order.code)).payments[0]?.metadata.public;
    assert.equal(shown?.amount, '25');
    assert.match(shown?.paymentUri ?? '', /^svc:svcd1/);
    assert.deepEqual(Object.keys((await buyer.look(order.code)).payments[0]?.metadata ?? {}), ['public']);
    // Whoever knows the code of an order may ask for its address, and everybody sees the reference.
    for (const seen of [reference, shown?.paymentUri]) assert.ok(!seen?.includes(order.code), seen);
    const picture = await fetch(`http://127.0.0.1:${port}${shown?.qrCodePath}`);
    assert.match(picture.headers.get('content-type') ?? '', /^image\/svg\+xml/);
    assert.match(await picture.text(), /^<svg/);
    assert.equal((await fetch(`http://127.0.0.1:${port}/svc-pay/code/another`)).status, 404);

    await pay(reference);
    await becomes(order, 'Authorized', 'PaymentAuthorized');
    await node.mine(CONFIRMATIONS);
    await becomes(order, 'Settled', 'PaymentSettled');
    assert.equal((await buyer.look(order.code)).payments[0]?.metadata.public.confirmations, CONFIRMATIONS);
    const mail = await until('an e-mail', () =>
        Promise.resolve(shop.mails().find(each => each.subject.includes(order.code))),
    );
    assert.ok(mail.body.includes(`http://127.0.0.1:${port}/assets/`), mail.body);

    await node.reorganise(CONFIRMATIONS);
    await becomes(order, 'Undone', 'PaymentSettled');
    await noted(order, 'Ship nothing');
    assert.match(await shop.ship(order.id), /undone/);
    await node.mine(CONFIRMATIONS);
    await becomes(order, 'Settled', 'PaymentSettled');
    await noted(order, 'has undone the payment', NO_LONGER);

    const [payment] = (await shop.order(order.id)).payments;
    assert.ok(payment);
    for (const part of [500, PRICE - 500]) {
        const refund = await shop.refund(payment.id, part);
        assert.deepEqual([refund.__typename, refund.state], ['Refund', 'Pending']);
    }
    const uris = await until('the payments back', async () => {
        const found = (await shop.order(order.id)).payments[0]?.refunds.map(
            each => each.metadata.svc?.paymentUri,
        );
        return found?.every(Boolean) && (found as string[]);
    });
    assert.deepEqual(uris.map(uri => /amount=([0-9.]+)/.exec(uri)?.[1]).sort(), ['10', '15']);
    await noted(order, 'Pay 10 SVC back');
    for (const uri of uris) {
        const [, to = '', coins = '', ref = ''] = /^svc:(\w+)\?amount=([0-9.]+)&ref=([^&]+)/.exec(uri) ?? [];
        const { parseAmount } = await svcPay();
        await pay(ref, parseAmount(coins), to, merchant);
    }
    await node.mine(1);
    assert.deepEqual(
        (await shop.order(order.id)).payments[0]?.refunds.map(each => each.state),
        ['Pending', 'Pending'],
    );
    await noted(order, 'returns 10 SVC', 'sends the coins back', 'do not pay twice');
    await node.mine(CONFIRMATIONS - 1);
    const refunds = () =>
        until('the refunds', async () =>
            (await shop.order(order.id)).payments[0]?.refunds.every(each => each.state === 'Settled'),
        );
    await refunds();
    await noted(order, 'returns 10 SVC', 'Done: the transfer');
    assert.ok(uris.every(uri => !uri.includes(order.code)));

    // Only the payments back are undone, and Vendure has no state for that.
    await node.reorganise(CONFIRMATIONS);
    await noted(order, 'undone the payment of refund', 'do not pay twice');
    await node.mine(CONFIRMATIONS);
    await noted(order, 'undone the payment of refund', NO_LONGER);
    await refunds();
    await becomes(order, 'Settled', 'PaymentSettled');
});

test('refunds that are together more than the payment fail', async () => {
    const { order, reference } = await begun();
    await pay(reference);
    await node.mine(CONFIRMATIONS);
    await becomes(order, 'Settled', 'PaymentSettled');
    const [payment] = (await shop.order(order.id)).payments;
    assert.equal((await shop.refund(payment?.id ?? '', PRICE)).state, 'Pending');
    assert.equal((await shop.refund(payment?.id ?? '', 1)).__typename, 'RefundAmountError');
    await noted(order, 'Pay 25 SVC back');
    // Two administrators at the same moment: Vendure counts only what is stored.
    const refunds = shop.server.app.get(TransactionalConnection).rawConnection.getRepository(Refund);
    const [first] = await refunds.find({
        where: { payment: { transactionId: reference } },
        relations: ['payment'],
    });
    await refunds.save(
        new Refund({ ...first, id: undefined as never, transactionId: undefined as never, metadata: {} }),
    );
    assert.equal((await check()).failed, 0);
    await noted(order, 'more than what is left of the payment', reference);
    const states = (await shop.order(order.id)).payments[0]?.refunds.map(each => each.state);
    assert.deepEqual(states?.sort(), ['Failed', 'Pending']);
});

test('what the staff does by hand ends notes at once, without a question to the node', async () => {
    const [undone, cancelled] = [await begun(), await begun()];
    for (const { reference } of [undone, cancelled]) await pay(reference);
    await becomes(cancelled.order, 'Authorized', 'PaymentAuthorized');
    await shop.byHand(`cancelOrder(input: { orderId: "${cancelled.order.id}" })`);
    await node.mine(CONFIRMATIONS);
    for (const { order } of [undone, cancelled]) await becomes(order, 'Settled');
    await noted(cancelled.order, 'the order was cancelled', 'Refund it');
    const paymentOf = async ({ id }: ShopOrder) => (await shop.order(id)).payments[0]?.id ?? '';
    const refund = await shop.refund(await paymentOf(cancelled.order), PRICE);
    await noted(cancelled.order, 'Pay 25 SVC back');
    await node.reorganise(CONFIRMATIONS);
    await becomes(undone.order, 'Undone');
    await noted(undone.order, 'Ship nothing');
    for (const { reference } of [undone, cancelled]) await silence(reference);

    await shop.byHand(`cancelPayment(id: "${await paymentOf(undone.order)}")`);
    await noted(undone.order, 'has undone the payment', 'Done: the payment is cancelled.');
    await shop.byHand(`settleRefund(input: { id: "${refund.id}", transactionId: "by bank" })`);
    await noted(cancelled.order, 'returns 25 SVC', 'Done: it was settled in another way.');
    await node.mine(CONFIRMATIONS);
    await check();
    await noted(cancelled.order, 'the order was cancelled', 'Done: it is refunded.');
});

test('a payment of another channel goes on in that channel', async () => {
    const channel = await shop.openChannel('second');
    const { order, reference } = await begun(channel);
    const channels: string[] = [];
    const following = shop.server.app
        .get(EventBus)
        .ofType(PaymentStateTransitionEvent)
        .subscribe(({ ctx, payment }) => {
            if (payment.transactionId === reference) channels.push(ctx.channel.code);
        });
    await pay(reference);
    await becomes(order, 'Authorized', 'PaymentAuthorized');
    await node.mine(CONFIRMATIONS);
    await becomes(order, 'Settled', 'PaymentSettled');
    following.unsubscribe();
    assert.deepEqual(channels, ['second', 'second']);
});

test('what was begun goes on when the payment method is disabled', async () => {
    const [bought, left] = [await begun(), await begun()];
    await shop.enable('coins', false);
    await pay(bought.reference);
    await node.mine(CONFIRMATIONS);
    await becomes(bought.order, 'Settled', 'PaymentSettled');
    await left.buyer.go('AddingItems');
    await becomes(left.order, 'Cancelled', 'AddingItems');
    await shop.enable('coins', true);
});

test('settings with which nothing could be sold are not saved', async () => {
    const { MAINNET } = await svcPay();
    const elsewhere = await merchant.address(MAINNET);
    const right = {
        node: 'main',
        recipient: merchantAddress,
        confirmations: 2,
        minutesToPay: 4,
        currency: 'USD',
    };
    const rated = { ...right, rate: '0.50', rateMaxAge: 60 };
    const cases: Array<[{ [name: string]: string | number }, RegExp]> = [
        [{ node: 'mian' }, /no node "mian"; it has main, wrong, page, closed/],
        [{ recipient: merchantAddress.slice(0, -1) + 'q' }, /is mistyped/],
        [{ recipient: elsewhere }, /network|address/],
        // The form has a field of several lines for it.
        [{ recipient: `${merchantAddress.slice(0, 30)}\n${merchantAddress.slice(30)}` }, /address/],
        [{ rate: '0,48' }, /"0,48" is not a rate; give a number above 0 with a point, such as 0.48/],
        [{ node: 'page' }, /explorer does not answer like a svcd node \(status 40[45]\): check the URL/],
        [{ rate: '' }, /either a fixed rate or the URL/],
        [{ rateUrl: 'https://rates.example/', ratePath: 'USD' }, /either a fixed rate or the URL/],
        [{ rate: '', rateUrl: 'https://rates.example/' }, /path of the rate/],
        [{ minutesToPay: 0 }, /Minutes to pay/],
        [{ confirmations: 0 }, /Confirmations/],
        [{ currency: 'usd' }, /three capital letters/],
    ];
    for (const [change, sentence] of cases)
        await assert.rejects(shop.offer('bad', { ...rated, ...change }), sentence, JSON.stringify(change));
    await shop.offer('good', rated);
});

test('the scheduled test says what is wrong', async () => {
    const found = await shop.server.app.get(SvcPayService).tryAll();
    assert.ok(
        found.some(sentence => /token of the node "wrong"/.test(sentence)),
        found.join('\n'),
    );
    assert.ok(
        found.some(sentence => /payment method dear: /.test(sentence)),
        found.join('\n'),
    );
    // Buyers would get a link that leads nowhere, though Vendure reaches the node.
    assert.ok(
        found.some(sentence =>
            /payment method closed: the publicUrl of its node leads buyers to no node of its network: /.test(
                sentence,
            ),
        ),
        found.join('\n'),
    );
    assert.ok(
        !found.some(sentence => /node "(main|closed)"|payment method coins/.test(sentence)),
        found.join('\n'),
    );
});

test('a rate comes from a URL, as long as it is new enough', async () => {
    const offered = async () => {
        const { payments, paymentErrorMessage } = await (await shop.buyer()).begin('live');
        return payments?.[0]?.metadata.public.amount ?? paymentErrorMessage;
    };
    const becomesOffer = (offer: string) =>
        until(`the offer ${offer}`, async () => (await offered())?.includes(offer));
    assert.equal(await offered(), '25');
    // A number that is not exact is rounded up.
    rate.coin = 0.3;
    await becomesOffer('41.66666667');
    for (const wrong of ['0', -1, null, '1,5', { coin: 1 }]) {
        rate.coin = wrong;
        await becomesOffer('no current rate of USD');
    }
    rate.coin = '12.5';
    await becomesOffer('1');
    rates.close();
    rates.closeAllConnections();
    await becomesOffer('no current rate of USD');
});

test('options with which nothing could be sold stop the server', async () => {
    const options = (node: object, serverUrl = 'https://shop.example') => {
        const main = {
            url: 'https://node.example',
            token: 'a'.repeat(43),
            signingSecret: 'b'.repeat(43),
            ...node,
        };
        // Nothing but the options is asked.
        const [connection, config, context, channels, machine, orders, history, events] = Array<never>(8);
        return new SvcPayService(
            { serverUrl, nodes: { main } },
            connection as never,
            config as never,
            context as never,
            channels as never,
            machine as never,
            orders as never,
            history as never,
            events as never,
        ).onApplicationBootstrap();
    };
    await assert.rejects(options({ token: undefined }), /the node "main" has no token/);
    await assert.rejects(options({ signingSecret: undefined }), /the node "main" has no signingSecret/);
    await assert.rejects(options({ signingSecret: [] }), /the node "main" has no signingSecret/);
    await assert.rejects(options({ url: 'node.example' }), /"main": the URL of a node begins with http/);
    await assert.rejects(options({ url: 'http://node.example' }), /unencrypted/);
    await assert.rejects(options({ network: '{}' }), /"main": /);
    await assert.rejects(options({}, 'shop.example'), /serverUrl must be a URL/);
});

test('too little, too much and twice are noted with the proposed refund, once', async () => {
    const { buyer, order, reference } = await begun();
    await pay(reference, AMOUNT - 1n);
    await node.mine(1);
    await noted(order, 'too little', '24.99999999', `--confirmations ${CONFIRMATIONS}`);
    await becomes(order, 'AwaitingTransfer', 'ArrangingPayment');
    const { wrongAmounts } = (await buyer.look(order.code)).payments[0]?.metadata.public ?? {};
    assert.deepEqual(wrongAmounts, ['24.99999999']);
    assert.equal(
        await pageSays(buyer, order),
        '24.99999999 SVC arrived; the order costs 25 SVC. They pay nothing; ask for their refund.',
    );
    await pay(reference, AMOUNT + 1n);
    await node.mine(1);
    await noted(order, 'too much', '25.00000001');
    assert.match(await pageSays(buyer, order), /^24\.99999999 and 25\.00000001 SVC arrived; /);
    await pay(reference);
    await node.mine(1);
    await pay(reference);
    await node.mine(1);
    await noted(order, 'paid already');
    await becomes(order, 'Settled', 'PaymentSettled');
    await node.mine(1);
    await check();
    assert.equal((await shop.notes(order.id)).length, 3);
});

test('a note about a wrong amount ends when the coins are sent back, or when they have gone', async () => {
    const { DEVNET, refundReference } = await svcPay();
    const { buyer, order, reference } = await begun();
    const wrong = async () => (await buyer.look(order.code)).payments[0]?.metadata.public.wrongAmounts.length;
    await pay(reference, AMOUNT - 1n);
    await node.mine(CONFIRMATIONS);
    await noted(order, 'too little', 'Proposed refund');
    assert.equal(await wrong(), 1);
    await node.reorganise(CONFIRMATIONS);
    await check();
    await noted(order, 'too little', NO_LONGER);
    assert.equal(await wrong(), 0);
    await node.mine(CONFIRMATIONS);
    await check();
    await noted(order, 'too little', 'Proposed refund');

    await pay(await refundReference(reference, ''), AMOUNT - 1n, await faucet.address(DEVNET), merchant);
    await check();
    await noted(order, 'too little', 'sends the coins back', 'do not pay twice');
    await node.mine(CONFIRMATIONS);
    await check();
    await noted(order, 'too little', 'Done: the transfer', 'has sent the coins back.');
    assert.deepEqual([(await shop.notes(order.id)).length, await wrong()], [1, 0]);
});

test('whether a wrong amount was sent back is asked for thirty days', async () => {
    const { DEVNET, refundReference } = await svcPay();
    const payments = shop.server.app.get(TransactionalConnection).rawConnection.getRepository(Payment);
    const { buyer, order, reference } = await begun();
    const stored = () => payments.findOneByOrFail({ transactionId: reference });
    const isAsked = async (days: number) => {
        const payment = await stored();
        Object.assign(payment.metadata.svc as object, { askedAt: 0, begunAt: Date.now() - days * DAY });
        await payments.save(payment);
        await payments.update(payment.id, { createdAt: new Date(Date.now() - days * DAY) });
        await check();
        return ((await stored()).metadata.svc as Attempt).askedAt > 0;
    };
    await pay(reference, AMOUNT - 1n);
    await node.mine(CONFIRMATIONS);
    await noted(order, 'too little', 'Proposed refund');
    await buyer.go('AddingItems');
    assert.deepEqual([await isAsked(29), await isAsked(31)], [true, false]);
    await pay(await refundReference(reference, ''), AMOUNT - 1n, await faucet.address(DEVNET), merchant);
    await node.mine(CONFIRMATIONS);
    assert.ok(await isAsked(29));
    await noted(order, 'too little', 'Done: the transfer');
    // Its feed would tell of anything else.
    assert.equal(await isAsked(1), false);
});

/** An attempt of whose payment no event tells. */
async function begunInSilence(method?: string): ReturnType<typeof begun> {
    const attempt = await begun(undefined, method);
    await silence(attempt.reference);
    return attempt;
}

const stateOf = async ({ id }: ShopOrder) => (await shop.order(id)).payments[0]?.state;

/** Runs the scheduled check, in which nothing may fail, and answers with the state of a payment. */
async function stateAfterCheck(order: ShopOrder): Promise<string | undefined> {
    assert.equal((await check()).failed, 0, logged.slice(-5).join('\n'));
    return stateOf(order);
}

test('without events the feed tells of a payment, and of the reorganisation that undoes it', async () => {
    const { order, reference } = await begunInSilence();
    assert.equal(await stateAfterCheck(order), 'AwaitingTransfer');
    await pay(reference);
    assert.equal(await stateAfterCheck(order), 'Authorized');
    await node.mine(1);
    assert.equal(await stateAfterCheck(order), 'Authorized');
    const shown = async () => (await shop.order(order.id)).payments[0]?.metadata.public.confirmations;
    assert.equal(await shown(), 1);
    await node.mine(CONFIRMATIONS - 1);
    assert.equal(await stateAfterCheck(order), 'Settled');
    await node.reorganise(CONFIRMATIONS);
    assert.equal(await stateAfterCheck(order), 'Undone');
    await node.mine(CONFIRMATIONS);
    assert.equal(await stateAfterCheck(order), 'Settled');
});

test('what an event has told, and a reorganisation undone, between two runs of the check is found', async () => {
    const { order, reference } = await begun();
    await check();
    await pay(reference);
    await node.mine(CONFIRMATIONS);
    await becomes(order, 'Settled');
    await silence(reference);
    await node.reorganise(CONFIRMATIONS);
    assert.equal(await stateOf(order), 'Settled');
    assert.equal(await stateAfterCheck(order), 'Undone');
    await node.mine(CONFIRMATIONS);
    assert.equal(await stateAfterCheck(order), 'Settled');
});

test('without events a late transfer for an old attempt is noted', async () => {
    const payments = shop.server.app.get(TransactionalConnection).rawConnection.getRepository(Payment);
    const { buyer, order, reference } = await begunInSilence();
    await buyer.go('AddingItems');
    const old = new Date(Date.now() - 60 * DAY);
    await payments.update({ transactionId: reference }, { createdAt: old, updatedAt: old });
    await pay(reference);
    await node.mine(CONFIRMATIONS);
    await check();
    await noted(order, 'when the attempt to pay had ended', 'Proposed refund');
});

test('a place in the feed that the node refuses is given up, and everything is asked about', async () => {
    const entries = shop.server.app
        .get(TransactionalConnection)
        .rawConnection.getRepository(SettingsStoreEntry);
    const places = () => entries.findBy({ key: 'svcPay.feed' });
    const { order, reference } = await begunInSilence();
    await check();
    await pay(reference);
    await node.mine(CONFIRMATIONS);
    for (const place of await places())
        await entries.save({ ...place, value: { ...(place.value as object), cursor: 'x' } });
    assert.equal(await stateAfterCheck(order), 'Settled');
    assert.ok(logged.some(line => /the node does not go on with the feed/.test(line)));
    assert.ok((await places()).every(({ value }) => (value as Place).cursor.length > 1));

    // Such a node would have to have deleted a week of blocks.
    await node.reorganise(CONFIRMATIONS);
    const isFeed = (path: string) => path.startsWith('/rpc/commerce/feed/');
    relay.refusal = { of: isFeed, status: 410, error: 'this node has only blocks from 20000 on' };
    assert.equal(await stateAfterCheck(order), 'Undone');
    await node.mine(CONFIRMATIONS);
    assert.equal(await stateAfterCheck(order), 'Settled');
});

test('orders to an address that was changed meanwhile go on', async () => {
    const { DEVNET, Key } = await svcPay();
    const other = await (await Key.fromSeed(new Uint8Array(32).fill(8))).address(DEVNET);
    const settings = {
        node: 'main',
        recipient: merchantAddress,
        confirmations: CONFIRMATIONS,
        minutesToPay: 4,
    };
    const rated = { ...settings, currency: 'USD', rate: '0.50', rateMaxAge: 60 };
    await shop.offer('moving', rated);
    const before = await begunInSilence('moving');
    await shop.change('moving', { ...rated, recipient: other });
    const after = await begunInSilence('moving');
    await check();
    await pay(before.reference);
    await pay(after.reference, AMOUNT, other);
    await node.mine(CONFIRMATIONS);
    assert.deepEqual(
        [await stateAfterCheck(before.order), await stateOf(after.order)],
        ['Settled', 'Settled'],
    );
});

test('another node of the network goes on with the feed, once its chain is as long', async () => {
    const { order, reference } = await begunInSilence();
    await check();
    await node.stop();
    const elsewhere = join(folder, 'elsewhere');
    mkdirSync(elsewhere);
    cpSync(join(folder, 'node'), join(elsewhere, 'node'), {
        recursive: true,
        filter: path => !path.endsWith('.sock'),
    });
    const another = new Devnet(elsewhere, await freePort(), SVC);
    await Promise.all([node.start(), another.start()]);
    await pay(reference);
    await node.mine(CONFIRMATIONS);
    assert.equal(await stateAfterCheck(order), 'Settled');
    relay.target = another.url;
    await another.mine(1);
    // It does not know yet what has become of the payment.
    assert.deepEqual([(await check()).failed, await stateOf(order)], [1, 'Settled']);
    await another.mine(CONFIRMATIONS);
    assert.equal(await stateAfterCheck(order), 'Undone');
    await pay(reference, AMOUNT, merchantAddress, faucet, another.url);
    await another.mine(CONFIRMATIONS);
    assert.equal(await stateAfterCheck(order), 'Settled');
    relay.target = node.url;
    await another.stop();
    await node.mine(2 * CONFIRMATIONS + 1);
    assert.equal(await stateAfterCheck(order), 'Settled');
});

test('a second attempt has a reference of its own, and the first one is given up', async () => {
    const { buyer, order, reference } = await begun();
    assert.match((await buyer.begin()).paymentErrorMessage ?? '', /Nothing is left to pay/);
    await buyer.go('AddingItems');
    await becomes(order, 'Cancelled', 'AddingItems');
    await buyer.go('ArrangingPayment');
    const again = await buyer.begin();
    const second = again.payments.find(each => each.state === 'AwaitingTransfer');
    assert.ok(second && second.transactionId !== reference);
    await pay(reference);
    await node.mine(CONFIRMATIONS);
    await noted(order, 'when the attempt to pay had ended', reference);
    assert.equal((await shop.order(order.id)).state, 'ArrangingPayment');
    await pay(second.transactionId);
    await node.mine(CONFIRMATIONS);
    await becomes(order, 'Settled', 'PaymentSettled');
});

test('forged and replayed events change nothing', async () => {
    const { order, reference } = await begun();
    const { ApiError, Client } = await svcPay();
    const client = new Client(node.url, { token: tokens[0] ?? '' });
    const event = await eventOf(reference, 'confirmed');
    assert.equal(await send(event, 'y'.repeat(43)), 401);
    assert.equal(await send(event, tokens[1], 'main', Date.now() - 600_000), 401);
    assert.equal(await send(event, tokens[1], 'nobody'), 404);
    // The bytes are verified, and not what they say.
    assert.equal(await send(event, tokens[1], 'main', Date.now(), text => `${text} `), 401);
    assert.equal(await send({ ...event, more: 'x'.repeat(20_000) }), 413);
    // Signed by somebody who has got the secret: the node is asked all the same, and says that it is not so.
    assert.equal(await send(event), 200);
    await becomes(order, 'AwaitingTransfer', 'ArrangingPayment');

    await pay(reference);
    await node.mine(CONFIRMATIONS);
    await becomes(order, 'Settled', 'PaymentSettled');
    const [watch] = (await client.watches({ reference })).watches;
    assert.ok(watch);
    // An event that a newer one made obsolete before the shop had answered is not sent again. At the first event the
    // shop may have seen at the node what the last one will say.
    const delivered = await until('the deliveries', async () => {
        const events = (await client.watch(watch.id)).events ?? [];
        const sent = events.filter(each => each.deliveredAt !== null);
        return (
            events.every(each => each.deliveredAt !== null || each.superseded) &&
            sent.some(each => each.event === 'payment.confirmed') &&
            sent
        );
    });
    const before = (await shop.order(order.id)).history.items.length;
    const repeated: string[] = [];
    for (const { id, event: what, attempts } of delivered) {
        try {
            await client.redeliver(watch.id, id);
        } catch (error) {
            if (!(error instanceof ApiError && error.status === 409)) throw error;
            continue;
        }
        repeated.push(what);
        await until('the repeated event', async () => {
            const again = (await client.watch(watch.id)).events?.find(each => each.id === id);
            return again !== undefined && again.attempts > attempts && again.nextAttemptAt === null;
        });
    }
    assert.ok(repeated.includes('payment.confirmed'), repeated.join());
    const after = await shop.order(order.id);
    assert.deepEqual([after.history.items.length, after.payments[0]?.state], [before, 'Settled']);
});

test('what is wrong with the settings is for the log, and the buyer may pay in another way', async () => {
    const buyer = await shop.buyer();
    const refused = async (method: string) => (await buyer.begin(method)).paymentErrorMessage;
    assert.equal(await refused('wrong'), 'The shop cannot ask its node at present. Try again later.');
    assert.match(
        (await refused('dear')) ?? '',
        /takes no coins at present, because it has no current rate of USD/,
    );
    assert.equal(await refused('euro'), 'Only orders in EUR can be paid with coins.');
    assert.equal((await buyer.begin()).state, 'ArrangingPayment');
});

test('the node is away: nothing is sold, and a missed event is made good', async () => {
    const { order, reference } = await begun();
    await pay(reference);
    await becomes(order, 'Authorized', 'PaymentAuthorized');
    const event = await eventOf(reference, 'confirmed');
    await node.stop();
    const buyer = await shop.buyer();
    assert.equal(
        (await buyer.begin()).paymentErrorMessage,
        'The shop cannot ask its node at present. Try again later.',
    );
    // Not 429 or 502 to 504, with which the node would hold back the events of all other orders.
    assert.equal(await send(event), 409);
    assert.equal((await check()).failed, 1);
    await becomes(order, 'Authorized', 'PaymentAuthorized');
    await node.start();
    assert.equal((await buyer.begin()).state, 'ArrangingPayment');
    await silence(reference);
    await node.mine(CONFIRMATIONS);
    assert.equal((await shop.order(order.id)).payments[0]?.state, 'Authorized');
    assert.equal((await check()).failed, 0);
    await becomes(order, 'Settled', 'PaymentSettled');
});

test('a payment that another plugin holds does not hold up the others', async () => {
    const [first, second] = [await begun(), await begun()];
    held.add(first.order.code);
    for (const { reference } of [first, second]) {
        await silence(reference);
        await pay(reference);
    }
    await node.mine(CONFIRMATIONS);
    assert.equal((await check()).failed, 1);
    await becomes(second.order, 'Settled', 'PaymentSettled');
    await becomes(first.order, 'AwaitingTransfer', 'ArrangingPayment');
    held.clear();
    assert.equal((await check()).failed, 0);
    await becomes(first.order, 'Settled', 'PaymentSettled');
});

test('paid in the last minute counts, and paid late is noted', async () => {
    const [inTime, late] = [await begun(), await begun()];
    await node.passes(180);
    await pay(inTime.reference);
    await becomes(inTime.order, 'Authorized', 'PaymentAuthorized');
    // Less than 5 minutes, by which the time of a signature may be off.
    await node.passes(290);
    await node.mine(1);
    await becomes(late.order, 'Cancelled', 'ArrangingPayment');
    await node.mine(CONFIRMATIONS);
    await becomes(inTime.order, 'Settled', 'PaymentSettled');
    await pay(late.reference);
    await node.mine(CONFIRMATIONS);
    await noted(late.order, 'when the attempt to pay had ended', 'Proposed refund');
    assert.equal((await shop.order(late.order.id)).state, 'ArrangingPayment');
    // The attempt has failed, and the order has not.
    const again = await late.buyer.begin();
    assert.ok(again.payments.some(each => each.state === 'AwaitingTransfer'));
});
