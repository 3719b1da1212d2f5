import { Inject, Injectable, OnApplicationBootstrap } from '@nestjs/common';
import {
    ChannelService,
    ConfigService,
    CreatePaymentErrorResult,
    CreatePaymentResult,
    CurrencyCode,
    EventBus,
    HistoryService,
    ID,
    InternalServerError,
    Logger,
    Order,
    OrderService,
    OrderStateTransitionEvent,
    Payment,
    PaymentMethod,
    PaymentMethodEvent,
    PaymentState,
    PaymentStateTransitionEvent,
    Refund,
    RefundEvent,
    RefundStateTransitionEvent,
    RequestContext,
    RequestContextService,
    SettlePaymentErrorResult,
    SettlePaymentResult,
    totalCoveredByPayments,
    TransactionalConnection,
    Type,
    UserInputError,
    VendureEvent,
} from '@vendure/core';
import { ConfigArg } from '@vendure/common/lib/generated-types';
import { internal_setRequestContext } from '@vendure/core/dist/api/common/request-context';
import { OrderHistoryEntry } from '@vendure/core/dist/entity/history-entry/order-history-entry.entity';
import { PaymentStateMachine } from '@vendure/core/dist/service/helpers/payment-state-machine/payment-state-machine';
import { Request, request } from 'express';
import { Like, Not } from 'typeorm';

import { CODE, loggerCtx, ROUTE, SVC_PAY_NOTE, SVC_PAY_OPTIONS } from './constants';
import { lockRows } from './lock';
import { Client, NodePayment, PaymentRequest, Quote, RateSource, ReceivedTransfer, svcPay } from './svc-pay';
import {
    attemptOf,
    backOf,
    changedNotes,
    coinsBack,
    decimalOf,
    endedNotes,
    hasOpenTransfers,
    KnownState,
    newReference,
    nextState,
    openSenders,
    OrderView,
    PAY,
    REFUND,
    refundedBefore,
    refundNotes,
    Seen,
    stateNotes,
    topOf,
    transferNotes,
    wrongAmounts,
} from './terms';
import {
    Attempt,
    Note,
    PaymentBack,
    PublicMetadata,
    SvcPayNode,
    SvcPayPluginOptions,
    SvcPaySettings,
    WrittenNote,
} from './types';

declare module '@vendure/core' {
    interface OrderHistoryEntryData {
        SVC_PAY_NOTE: { note: string; state: Note['state'] };
    }
}

const EVENTS = [
    'payment.pending',
    'payment.confirming',
    'payment.confirmed',
    'payment.reorged',
    'payment.expired',
    'payment.dropped',
    'payment.mismatched',
] as const;
/** How long after its time a payment is given up whose watch the node has lost. */
const GRACE = 60_000;
const ATTEMPTS = 10;

/**
 * @description
 * Asks the nodes, and changes payments, orders and refunds as they say.
 */
@Injectable()
export class SvcPayService implements OnApplicationBootstrap {
    private clients = new Map<string, Promise<Client>>();
    private rates = new Map<string, RateSource>();

    constructor(
        @Inject(SVC_PAY_OPTIONS) private options: SvcPayPluginOptions,
        private connection: TransactionalConnection,
        private configService: ConfigService,
        private contextService: RequestContextService,
        private channelService: ChannelService,
        private paymentStateMachine: PaymentStateMachine,
        private orderService: OrderService,
        private historyService: HistoryService,
        private eventBus: EventBus,
    ) {}

    async onApplicationBootstrap() {
        await this.checkOptions();
        type OrderEvent = Type<VendureEvent & { order: Order }>;
        const after = (events: OrderEvent[], what: string, act: (orderId: ID) => Promise<void>) => {
            for (const event of events)
                this.eventBus.ofType(event).subscribe(({ order }) => {
                    act(order.id).catch((error: unknown) =>
                        Logger.error(`${what} of ${order.code}: ${sentenceOf(error)}`, loggerCtx),
                    );
                });
        };
        // Vendure publishes this event after it has stored the refund as pending, without an answer of a handler.
        after([RefundEvent], 'refunds', id => this.prepareRefunds(id));
        // What the staff does to old payments and refunds: the scheduled check no longer asks about them.
        const moves = [OrderStateTransitionEvent, PaymentStateTransitionEvent, RefundStateTransitionEvent];
        after(moves, 'notes', id => this.endNotes(id));
        // Within the transaction that saves the method: what is thrown here is shown in the form, and nothing is saved.
        this.eventBus.registerBlockingEventHandler({
            event: PaymentMethodEvent,
            id: 'svc-pay-settings',
            handler: async ({ ctx, entity, type }) => {
                if (type === 'deleted') return;
                // The entity of the event has only what was changed.
                const { enabled, handler } = await this.connection.getEntityOrThrow(
                    ctx,
                    PaymentMethod,
                    entity.id,
                );
                if (!enabled || handler.code !== CODE) return;
                const wrong = await this.wrongSetting(settingsOf(handler.args));
                if (wrong !== null) throw new UserInputError(wrong);
            },
        });
    }

    // The nodes

    /** Throws for options with which nothing could be sold, instead of at the first sale. */
    private async checkOptions(): Promise<void> {
        const { serverUrl, nodes } = this.options;
        const wrong = (sentence: string) => new InternalServerError(`SvcPayPlugin: ${sentence}`);
        if (!isHttpUrl(serverUrl))
            throw wrong('serverUrl must be a URL that begins with https:// or http://');
        for (const [name, { token, signingSecret }] of Object.entries(nodes)) {
            // What comes from the environment may be missing.
            if (typeof token !== 'string' || token.trim() === '')
                throw wrong(`the node "${name}" has no token`);
            if (signingSecret === undefined || signingSecret.length === 0)
                throw wrong(`the node "${name}" has no signingSecret`);
            try {
                await this.webhook(name);
                await this.client(name);
            } catch (error) {
                throw wrong(`the node "${name}": ${sentenceOf(error)}`);
            }
        }
    }

    /** Why nothing can be sold with these settings; null if it can. Whether there is a rate just now is not asked. */
    private async wrongSetting(settings: SvcPaySettings): Promise<string | null> {
        const { ApiError, NodeUnreachable, SvcPayError } = await svcPay();
        const { node, recipient, confirmations, minutesToPay, currency, rate, rateUrl, ratePath } = settings;
        if (this.node(node) === undefined)
            return `The configuration of the server has no node "${node}"; it has ${Object.keys(this.options.nodes).join(', ')}.`;
        const whole = (value: number, most: number) => Number.isInteger(value) && value >= 1 && value <= most;
        if (!whole(confirmations, 1000)) return 'Confirmations must be a whole number from 1 to 1000.';
        if (!whole(minutesToPay, 10_080)) return 'Minutes to pay must be a whole number from 1 to 10080.';
        if (!whole(settings.rateMaxAge, 86_400))
            return 'The greatest age of the rate must be a whole number of seconds from 1 to 86400.';
        if (!Object.values<string>(CurrencyCode).includes(currency))
            return `"${currency}" is not a currency; a currency has three capital letters, such as EUR.`;
        if ((rate === '') === (rateUrl === '')) return 'Give either a fixed rate or the URL of a rate.';
        if (rateUrl !== '' && ratePath === '')
            return 'The path of the rate in the JSON is missing, such as data.rates.EUR.';
        try {
            await this.rateSource(settings);
            const client = await this.client(node);
            await client.paymentRequest({
                recipient,
                amount: 1n,
                reference: newReference(PAY),
                confirmations,
            });
        } catch (error) {
            if (!(error instanceof SvcPayError)) throw error;
            if (error instanceof ApiError && error.status === 404)
                // A node has this path.
                return `The node "${node}": ${this.node(node)?.url} does not answer like a svcd node (status 404): check the URL`;
            const asked =
                error instanceof NodeUnreachable || error instanceof ApiError ? `The node "${node}": ` : '';
            return `${asked}${error.message}`;
        }
        return null;
    }

    /**
     * Tries what every enabled payment method says, and the token, callback and public URL of every node; answers with
     * a sentence for each thing that is wrong, and one if nothing is.
     */
    async tryAll(): Promise<string[]> {
        const found: string[] = [];
        for (const name of Object.keys(this.options.nodes)) found.push(...(await this.tryNode(name)));
        const methods = await this.connection.rawConnection
            .getRepository(PaymentMethod)
            .findBy({ enabled: true });
        for (const { code, handler } of methods.filter(method => method.handler.code === CODE)) {
            const settings = settingsOf(handler.args);
            const wrong = (await this.wrongSetting(settings)) ?? (await this.wrongNow(settings));
            if (wrong !== null) found.push(`The payment method ${code}: ${wrong}`);
        }
        for (const sentence of found) Logger.error(sentence, loggerCtx);
        return found.length > 0
            ? found
            : ['Nodes, callbacks, public URLs, payment methods and rates are right.'];
    }

    /** Why buyers could not pay just now with settings that could be saved; null if they could. */
    private async wrongNow(settings: SvcPaySettings): Promise<string | null> {
        const { Client } = await svcPay();
        const publicUrl = this.node(settings.node)?.publicUrl;
        try {
            await (await this.rateSource(settings)).rate();
        } catch (error) {
            return sentenceOf(error);
        }
        if (publicUrl === undefined) return null;
        try {
            const { network } = await this.client(settings.node);
            const { recipient, confirmations } = settings;
            const visitor = new Client(publicUrl, { network });
            await visitor.paymentRequest({
                recipient,
                amount: 1n,
                reference: newReference(PAY),
                confirmations,
            });
            return null;
        } catch (error) {
            return `the publicUrl of its node leads buyers to no node of its network: ${sentenceOf(error)}`;
        }
    }

    private async tryNode(name: string): Promise<string[]> {
        const client = await this.client(name);
        const trials: Array<[string, () => Promise<unknown>]> = [
            ['token', () => client.watches({ limit: 1 })],
            ['callback', () => this.tryCallback(client, name)],
        ];
        const found: string[] = [];
        for (const [what, trial] of trials)
            await trial().catch((error: unknown) =>
                found.push(`The ${what} of the node "${name}": ${sentenceOf(error)}`),
            );
        return found;
    }

    private async tryCallback(client: Client, name: string): Promise<void> {
        const { error, status } = await client.testCallback(this.callbackUrl(name));
        if (status === 401) throw new InternalServerError('its signingSecret is not that of the node');
        if (error !== null) throw new InternalServerError(error);
    }

    node(name: string): SvcPayNode | undefined {
        return Object.hasOwn(this.options.nodes, name) ? this.options.nodes[name] : undefined;
    }

    /** Verifies the events of a node; null if there is none with this name. */
    async webhook(name: string) {
        const { Webhook } = await svcPay();
        const node = this.node(name);
        return node === undefined ? null : new Webhook(node.signingSecret);
    }

    client(name: string): Promise<Client> {
        let client = this.clients.get(name);
        if (client === undefined) {
            client = this.connect(name);
            this.clients.set(name, client);
        }
        return client;
    }

    private async connect(name: string): Promise<Client> {
        const { Client, InvalidInput, parseNetwork } = await svcPay();
        const node = this.node(name);
        if (node === undefined) throw new InvalidInput(`the options of the plugin have no node "${name}"`);
        const network = node.network === undefined ? null : await parseNetwork(node.network);
        const token = node.token.trim();
        return new Client(node.url, { token, network, insecureHttp: node.insecureHttp ?? false });
    }

    private callbackUrl(name: string): string {
        return `${this.options.serverUrl.replace(/\/+$/, '')}/${ROUTE}/webhook/${encodeURIComponent(name)}`;
    }

    private async rateSource({
        currency,
        rate,
        rateUrl,
        ratePath,
        rateMaxAge,
    }: SvcPaySettings): Promise<RateSource> {
        const { RateSource } = await svcPay();
        if (rate) return RateSource.fixed(currency, rate);
        const key = JSON.stringify([currency, rateUrl, ratePath, rateMaxAge]);
        const source =
            this.rates.get(key) ?? RateSource.url(currency, rateUrl, ratePath, { maxAge: rateMaxAge });
        this.rates.set(key, source);
        return source;
    }

    // A new attempt

    /** Fixes the amount of coins, and asks the node for a payment request and a watch. */
    async begin(
        ctx: RequestContext,
        order: Order,
        amount: number,
        args: SvcPaySettings,
    ): Promise<CreatePaymentResult | CreatePaymentErrorResult> {
        const { RateRefused, SvcPayError } = await svcPay();
        try {
            return await this.connection.withTransaction(ctx, tx => this.attempt(tx, order, amount, args));
        } catch (error) {
            if (error instanceof UserInputError)
                return { amount, state: 'Error', errorMessage: error.message };
            if (!(error instanceof SvcPayError)) throw error;
            // What is wrong is for the log, not for the buyer.
            Logger.error(`${order.code}: ${error.name}: ${error.message}`, loggerCtx);
            const errorMessage =
                error instanceof RateRefused
                    ? `The shop takes no coins at present, because it has no current rate of ${order.currencyCode}. Try again later.`
                    : 'The shop cannot ask its node at present. Try again later.';
            return { amount, state: 'Error', errorMessage };
        }
    }

    private async attempt(
        ctx: RequestContext,
        order: Order,
        price: number,
        args: SvcPaySettings,
    ): Promise<CreatePaymentResult> {
        const { formatAmount, MAINNET, orderAmount } = await svcPay();
        // Of two attempts that begin at once the second one waits here, and finds the first.
        await lockRows(this.connection, ctx, Order, 'id', order.id);
        const others = await this.orderService.getOrderPayments(ctx, order.id);
        if (price <= 0 || others.some(other => other.state === 'AwaitingTransfer'))
            throw new UserInputError(
                'Nothing is left to pay. To begin another attempt, go back to the cart first.',
            );
        if (String(order.currencyCode) !== args.currency)
            throw new UserInputError(`Only orders in ${args.currency} can be paid with coins.`);
        const client = await this.client(args.node);
        const precision = this.configService.entityOptions.moneyStrategy?.precision ?? 2;
        const rate = await (await this.rateSource(args)).rate();
        const decimal = decimalOf(price, precision);
        const quote = orderAmount(decimal, args.currency, rate);
        const request = await client.paymentRequest({
            recipient: args.recipient,
            amount: quote.amount,
            reference: newReference(PAY),
            label: `Order of ${decimal} ${args.currency}`,
            confirmations: args.confirmations,
        });
        const watch = await client.register(request.order, this.callbackUrl(args.node), {
            events: EVENTS,
            payWithinSeconds: args.minutesToPay * 60,
        });
        const payUntil = Number(watch.payUntil ?? Date.now() + args.minutesToPay * 60_000);
        const { unit } = client.network ?? MAINNET;
        const shown = await this.shown(
            args.node,
            request,
            { amount: formatAmount(quote.amount), unit },
            payUntil,
        );
        return {
            amount: price,
            state: 'AwaitingTransfer',
            transactionId: request.order.reference,
            metadata: {
                svc: newAttempt(ctx, args.node, this.originOf(ctx), request, unit, quote, watch.id, payUntil),
                public: shown,
            },
        };
    }

    private originOf({ req }: RequestContext): string {
        const protocol = req?.get('x-forwarded-proto')?.split(',')[0] ?? req?.protocol;
        const origin = `${protocol}://${req?.get('host')}`;
        // Any client may send any host: one that is no URL must not stop the payment later.
        return new URL(isHttpUrl(origin) ? origin : this.options.serverUrl).origin;
    }

    private async shown(
        name: string,
        request: PaymentRequest,
        coins: { amount: string; unit: string },
        payUntil: number,
    ): Promise<PublicMetadata> {
        const { checkoutUrl } = await svcPay();
        const { order, paymentUri } = request;
        const publicUrl = this.node(name)?.publicUrl?.replace(/\/+$/, '');
        const links = publicUrl && {
            checkoutUrl: checkoutUrl(request, publicUrl, { until: payUntil }),
        };
        return {
            reference: order.reference,
            recipient: order.recipient,
            ...coins,
            paymentUri,
            ...links,
            qrCodePath: `/${ROUTE}/code/${order.reference}`,
            payUntil,
            confirmations: 0,
            requiredConfirmations: order.confirmations,
            seen: 'unpaid',
            wrongAmounts: [],
        };
    }

    /** The link for the buyer's wallet, of the attempt with this reference; null if there is none. */
    async paymentUri(reference: string): Promise<string | null> {
        const payment = await this.connection.rawConnection
            .getRepository(Payment)
            .findOneBy({ transactionId: reference });
        if (payment === null || attemptOf(payment) === undefined) return null;
        return (payment.metadata.public as PublicMetadata).paymentUri;
    }

    /** A payment is settled if the node has said last that it is confirmed, whoever asks for it. */
    settle(payment: Payment): SettlePaymentResult | SettlePaymentErrorResult {
        if (attemptOf(payment)?.settled) return { success: true };
        const seen = attemptOf(payment)?.seen ?? 'unpaid';
        const state = payment.state as Exclude<PaymentState, 'Settled'>;
        return { success: false, state, errorMessage: `The node has said last that the payment is ${seen}.` };
    }

    // What has become of attempts

    /** Asks about the payment or refund with this reference; nothing if there is none at this node. */
    async lookUp(node: string, reference: string): Promise<void> {
        const where = { transactionId: reference };
        const payment = await this.connection.rawConnection.getRepository(Payment).findOne({ where });
        if (payment !== null && attemptOf(payment)?.node === node) await this.check(payment.id);
        const refund = await this.connection.rawConnection.getRepository(Refund).findOne({ where });
        if (refund !== null && backOf(refund)?.node === node) await this.checkRefund(refund.id);
    }

    /**
     * Asks the node about an attempt, and changes the payment as it says. With `least` an answer of a node that catches
     * up, or whose chain is lower, is none.
     */
    async check(paymentId: ID, least?: number): Promise<void> {
        for (let tries = 0; tries < ATTEMPTS; tries++) {
            const payment = await this.connection.rawConnection
                .getRepository(Payment)
                .findOneByOrFail({ id: paymentId });
            const attempt = attemptOf(payment);
            if (attempt === undefined) return;
            const seen = await this.ask(attempt, payment.state as KnownState, least);
            const ctx = await this.context(attempt);
            const stored = await this.connection.withTransaction(ctx, async tx => {
                await lockRows(this.connection, tx, Payment, 'id', paymentId);
                const now = await this.connection.getEntityOrThrow(tx, Payment, paymentId, {
                    relations: ['order'],
                });
                // Another worker has stored an answer meanwhile, and nobody knows which of the two is newer.
                if (attemptOf(now)?.turn !== attempt.turn || now.state !== payment.state) return false;
                await this.store(tx, now, attempt, seen);
                return true;
            });
            if (stored) return;
        }
        throw new InternalServerError(`payment ${paymentId} changes too often to be checked`);
    }

    /** The order goes on in the channel and the language of its buyer, and with links to where the buyer was. */
    private async context({ channelId, languageCode, origin }: Attempt): Promise<RequestContext> {
        const channel = await this.channelService.findOne(RequestContext.empty(), channelId);
        const req = requestTo(origin);
        const ctx = await this.contextService.create({
            apiType: 'admin',
            channelOrToken: channel,
            languageCode,
            req,
        });
        internal_setRequestContext(req, ctx);
        return ctx;
    }

    private async ask(attempt: Attempt, state: KnownState, least?: number): Promise<Seen> {
        const { isSettled } = await svcPay();
        const client = await this.client(attempt.node);
        const { order } = attempt;
        const payment = await client.payment(order);
        await mustReach(payment, least);
        const waits = state === 'AwaitingTransfer' || state === 'Authorized';
        const unpaid = payment.state === 'unpaid' && payment.node?.synced === true;
        const expired = waits && (await this.hasExpired(client, attempt, unpaid));
        const ended = expired || state === 'Cancelled';
        const odd = payment.mismatches.length > 0 || payment.matchCount > (ended ? 0 : 1);
        const { recipient, reference, amount, sinceHeight } = order;
        const transfers =
            odd || hasOpenTransfers(attempt.notes)
                ? await client.payments(recipient, { reference, amount, sinceHeight })
                : [];
        const sentBack = new Map<string, ReceivedTransfer[]>();
        for (const sender of openSenders(attempt.notes, transfers))
            sentBack.set(sender, await this.sentBackTo(client, order, sender));
        return { payment, settled: isSettled(payment), expired, transfers, sentBack };
    }

    /** What `svc wallet refund` has sent back to a sender under the reference of an attempt. */
    private async sentBackTo(
        client: Client,
        { recipient, reference, sinceHeight }: Attempt['order'],
        sender: string,
    ): Promise<ReceivedTransfer[]> {
        const { refundReference } = await svcPay();
        const found = await client.payments(sender, {
            reference: await refundReference(reference, ''),
            sinceHeight,
        });
        return found.filter(each => each.sender === recipient);
    }

    /** The node decides, because only it knows when it has seen the transfer first. */
    private async hasExpired(
        client: Client,
        { watch, payUntil }: Attempt,
        unpaid: boolean,
    ): Promise<boolean> {
        const { ApiError } = await svcPay();
        try {
            const { lastState, ending } = await client.watch(watch);
            return lastState === 'expired' || ending === 'expired';
        } catch (error) {
            if (!(error instanceof ApiError && error.status === 404)) throw error;
            return unpaid && Date.now() > payUntil + GRACE;
        }
    }

    private async store(ctx: RequestContext, payment: Payment, attempt: Attempt, seen: Seen): Promise<void> {
        const from = payment.state as KnownState;
        const to = nextState(from, seen);
        const { state, confirmations, txid } = seen.payment;
        const order = await this.orderView(ctx, payment);
        const notes = await this.write(ctx, payment.order.id, attempt.notes, [
            ...stateNotes(from, to, attempt, seen, order),
            ...transferNotes(to ?? from, attempt, seen),
        ]);
        const svc: Attempt = {
            ...attempt,
            seen: state,
            settled: seen.settled,
            confirmations,
            txid,
            top: topOf(seen.payment, seen.transfers, attempt.top),
            turn: attempt.turn + 1,
            askedAt: Date.now(),
            notes,
        };
        const shown: PublicMetadata = {
            ...(payment.metadata.public as PublicMetadata),
            seen: state,
            confirmations,
            wrongAmounts: wrongAmounts(seen, notes),
        };
        payment.metadata = { ...payment.metadata, svc, public: shown };
        await this.connection.getRepository(ctx, Payment).save(payment, { reload: false });
        if (to === null) return;
        await this.move(ctx, payment, to);
        Logger.info(`${attempt.order.reference}: ${from} to ${to}`, loggerCtx);
    }

    private async orderView(ctx: RequestContext, payment: Payment): Promise<OrderView> {
        // Not as a relation of the payment: when that is saved, a refund that was created meanwhile would lose it.
        const refunds = await this.connection
            .getRepository(ctx, Refund)
            .findBy({ payment: { id: payment.id }, state: 'Settled' });
        const refunded = refunds.reduce((sum, refund) => sum + refund.total, 0) >= payment.amount;
        const others = await this.connection.getRepository(ctx, Payment).find({
            where: { order: { id: payment.order.id }, id: Not(payment.id), state: 'Settled' },
            relations: ['refunds'],
        });
        const covered = totalCoveredByPayments({ payments: others } as Order);
        const paidOtherwise = others.length > 0 && covered >= payment.order.totalWithTax;
        return { state: payment.order.state, refunded, paidOtherwise };
    }

    /** Ends the notes of an order that what was done in Vendure has ended; the node is not asked. */
    async endNotes(orderId: ID): Promise<void> {
        const payments = await this.connection.rawConnection.getRepository(Payment).find({
            where: { order: { id: orderId }, transactionId: Like(`${PAY}%`) },
            relations: ['refunds'],
        });
        for (const payment of payments) {
            const attempt = attemptOf(payment);
            if (attempt === undefined) continue;
            const ctx = await this.context(attempt);
            if (attempt.notes.some(({ state }) => state === 'open'))
                await this.connection.withTransaction(ctx, tx => this.endPaymentNotes(tx, payment.id));
            for (const { id, state } of payment.refunds)
                if (state === 'Settled')
                    await this.connection.withTransaction(ctx, tx => this.endRefundNotes(tx, id, orderId));
        }
    }

    private async endPaymentNotes(ctx: RequestContext, paymentId: ID): Promise<void> {
        await lockRows(this.connection, ctx, Payment, 'id', paymentId);
        const payment = await this.connection.getEntityOrThrow(ctx, Payment, paymentId, {
            relations: ['order'],
        });
        const attempt = attemptOf(payment);
        if (attempt === undefined) return;
        const order = await this.orderView(ctx, payment);
        const ended = endedNotes(payment.state as KnownState, attempt.notes, order);
        if (changedNotes(attempt.notes, ended).length === 0) return;
        const notes = await this.write(ctx, payment.order.id, attempt.notes, ended);
        const svc = { ...attempt, turn: attempt.turn + 1, notes };
        payment.metadata = { ...payment.metadata, svc };
        await this.connection.getRepository(ctx, Payment).save(payment, { reload: false });
    }

    private async endRefundNotes(ctx: RequestContext, refundId: ID, orderId: ID): Promise<void> {
        const [refund] = await lockRows(this.connection, ctx, Refund, 'id', refundId);
        const back = refund && backOf(refund);
        if (back?.seen !== 'unpaid') return;
        const view = { id: refundId, state: 'Settled', undone: false };
        await this.writeOfRefund(ctx, orderId, back, refundNotes(view, back, { state: 'unpaid' }));
    }

    /**
     * Does what `PaymentService` does, which refuses to settle or cancel a payment whose method was disabled,
     * renamed or deleted meanwhile: what was sold with it is still paid for.
     */
    private async move(ctx: RequestContext, payment: Payment, to: KnownState): Promise<void> {
        const { order, state: from } = payment;
        const { finalize } = await this.paymentStateMachine.transition(ctx, order, payment, to);
        await this.connection.getRepository(ctx, Payment).save(payment, { reload: false });
        await this.eventBus.publish(new PaymentStateTransitionEvent(from, to, ctx, payment, order));
        await finalize();
    }

    /** Cancels the open attempts of an order. */
    async giveUp(ctx: RequestContext, orderId: ID): Promise<void> {
        const open = await this.connection.getRepository(ctx, Payment).find({
            where: { order: { id: orderId }, state: 'AwaitingTransfer' },
            relations: ['order'],
        });
        for (const payment of open) await this.move(ctx, payment, 'Cancelled');
    }

    /** Writes what is new or has changed of the notes of an attempt; answers with all of them. */
    private async write(
        ctx: RequestContext,
        orderId: ID,
        written: WrittenNote[],
        notes: Note[],
    ): Promise<WrittenNote[]> {
        const all = new Map(written.map(note => [note.key, note]));
        for (const note of changedNotes(written, notes))
            all.set(note.key, {
                ...note,
                entry: await this.note(ctx, orderId, note, all.get(note.key)?.entry),
            });
        return [...all.values()];
    }

    /** Writes a note into the history of an order, or over its entry; answers with the id of the entry. */
    private async note(ctx: RequestContext, orderId: ID, note: Note, entryId?: ID): Promise<ID> {
        const data = { note: `${note.what} ${note.todo}`, state: note.state };
        const type = SVC_PAY_NOTE;
        const before =
            entryId === undefined
                ? null
                : await this.connection.getRepository(ctx, OrderHistoryEntry).findOneBy({ id: entryId });
        if (before === null) {
            const entry = { ctx, orderId, type, data } as const;
            return (await this.historyService.createHistoryEntryForOrder(entry, false)).id;
        }
        const { note: text, state } = before.data as typeof data;
        if (text !== data.note || state !== data.state)
            await this.historyService.updateOrderHistoryEntry(ctx, { ctx, entryId: before.id, type, data });
        return before.id;
    }

    // Refunds

    /** Asks the staff for the payments back that belong to pending refunds of an order. */
    async prepareRefunds(orderId: ID): Promise<void> {
        const refunds = await this.connection.rawConnection
            .getRepository(Refund)
            .find({ where: { state: 'Pending', payment: { order: { id: orderId } } }, order: { id: 'ASC' } });
        for (const refund of refunds) {
            let tries = 0;
            while (!(await this.prepareRefund(refund.id)))
                if (++tries === ATTEMPTS)
                    throw new InternalServerError(`the refunds of order ${orderId} change too often`);
        }
    }

    /** False if another refund of the same payment was prepared meanwhile, so that this one must be counted anew. */
    private async prepareRefund(refundId: ID): Promise<boolean> {
        const { InvalidAnswer, isSettled } = await svcPay();
        const refund = await this.connection.rawConnection.getRepository(Refund).findOneOrFail({
            where: { id: refundId },
            relations: ['payment', 'payment.refunds', 'payment.order'],
        });
        const { payment } = refund;
        const attempt = attemptOf(payment);
        if (attempt === undefined || backOf(refund) !== undefined) return true;
        const ctx = await this.context(attempt);
        const before = refundedBefore(refund.id, payment.refunds);
        if (before + refund.total > payment.amount) {
            await this.failRefund(ctx, refund);
            return true;
        }
        const client = await this.client(attempt.node);
        const { recipient, reference, confirmations, amount, sinceHeight } = attempt.order;
        const paid = await client.payment(attempt.order);
        if (!isSettled(paid)) {
            Logger.info(`${reference}: the refund waits until the payment is confirmed`, loggerCtx);
            return true;
        }
        const transfers = await client.payments(recipient, { reference, amount, sinceHeight });
        const transfer = transfers.find(each => each.txid === paid.txid);
        if (transfer === undefined)
            throw new InvalidAnswer('the node does not list a payment that it has verified');
        const coins = coinsBack(BigInt(amount), payment.amount, before, refund.total);
        const request = await client.paymentRequest({
            recipient: transfer.sender,
            amount: coins,
            reference: newReference(REFUND),
            label: `Refund ${refund.id}`,
            confirmations,
        });
        const watchedUntil = await this.watchRefund(client, attempt.node, request.order);
        const now = Date.now();
        const svc: PaymentBack = {
            node: attempt.node,
            order: request.order,
            unit: attempt.unit,
            paymentUri: request.paymentUri,
            watchedUntil,
            seen: 'unpaid',
            settled: false,
            wasSettled: false,
            turn: 0,
            begunAt: now,
            askedAt: now,
            notes: {},
        };
        const view = { id: refund.id, state: refund.state, undone: false };
        const paidBack = { state: 'unpaid' } as const;
        return this.connection.withTransaction(ctx, async tx => {
            // The refunds of a payment are counted one after the other.
            await lockRows(this.connection, tx, Payment, 'id', payment.id);
            const refunds = await this.connection
                .getRepository(tx, Refund)
                .findBy({ payment: { id: payment.id } });
            const current = refunds.find(each => each.id === refund.id);
            if (current?.state !== 'Pending' || backOf(current) !== undefined) return true;
            if (refundedBefore(refund.id, refunds) !== before) return false;
            const notes = await this.writeOfRefund(
                tx,
                payment.order.id,
                svc,
                refundNotes(view, svc, paidBack),
            );
            current.transactionId = request.order.reference;
            current.metadata = { ...current.metadata, svc: { ...svc, notes } };
            await this.connection.getRepository(tx, Refund).save(current, { reload: false });
            return true;
        });
    }

    /** Writes the notes of a refund; answers with the ids of all entries. */
    private async writeOfRefund(
        ctx: RequestContext,
        orderId: ID,
        back: PaymentBack,
        notes: Note[],
    ): Promise<PaymentBack['notes']> {
        const entries = { ...back.notes };
        for (const note of notes) entries[note.key] = await this.note(ctx, orderId, note, entries[note.key]);
        return entries;
    }

    /** Two that are created at the same moment can be more than the payment, which Vendure does not notice. */
    private async failRefund(ctx: RequestContext, { id, payment }: Refund): Promise<void> {
        await this.connection.withTransaction(ctx, async tx => {
            await lockRows(this.connection, tx, Payment, 'id', payment.id);
            const now = await this.connection.getEntityOrThrow(tx, Refund, id);
            if (now.state !== 'Pending' || backOf(now) !== undefined) return;
            await this.orderService.transitionRefundToState(tx, id, 'Failed');
            await this.note(tx, payment.order.id, {
                key: 'refund-failed',
                what: `Refund ${id} is more than what is left of the payment ${payment.transactionId}, and has failed.`,
                todo: 'There is nothing to do.',
                state: 'done',
            });
        });
    }

    private async watchRefund(client: Client, node: string, order: PaymentBack['order']): Promise<number> {
        const watch = await client.register(order, this.callbackUrl(node), { events: EVENTS });
        return Number(watch.expiresAt);
    }

    /** Asks about a payment back, and settles the refund when it is confirmed; `least` as in `check`. */
    async checkRefund(refundId: ID, least?: number): Promise<void> {
        for (let tries = 0; tries < ATTEMPTS; tries++) {
            const refund = await this.connection.rawConnection.getRepository(Refund).findOneOrFail({
                where: { id: refundId },
                relations: ['payment'],
            });
            const [attempt, back] = [attemptOf(refund.payment), backOf(refund)];
            if (attempt === undefined || back === undefined) return;
            const client = await this.client(back.node);
            const paid = await client.payment(back.order);
            await mustReach(paid, least);
            const over =
                refund.state === 'Pending' && paid.state === 'unpaid' && Date.now() > back.watchedUntil;
            const watchedUntil = over
                ? await this.watchRefund(client, back.node, back.order)
                : back.watchedUntil;
            const ctx = await this.context(attempt);
            const stored = await this.connection.withTransaction(ctx, async tx => {
                await lockRows(this.connection, tx, Refund, 'id', refundId);
                const now = await this.connection.getEntityOrThrow(tx, Refund, refundId, {
                    relations: ['payment', 'payment.order'],
                });
                // As in `check`: nobody knows which of two answers is newer.
                if (backOf(now)?.turn !== back.turn || now.state !== refund.state) return false;
                await this.storeRefund(tx, now, { ...back, watchedUntil }, paid);
                return true;
            });
            if (stored) return;
        }
        throw new InternalServerError(`refund ${refundId} changes too often to be checked`);
    }

    private async storeRefund(
        ctx: RequestContext,
        refund: Refund,
        back: PaymentBack,
        paid: NodePayment,
    ): Promise<void> {
        const { isSettled } = await svcPay();
        const settled = isSettled(paid);
        const undone = back.settled && paid.state !== 'confirmed' && paid.node?.synced === true;
        const { id, state, payment } = refund;
        const answered: PaymentBack = {
            ...back,
            seen: paid.state,
            settled: settled || (back.settled && !undone),
            wasSettled: settled || back.wasSettled,
            txid: paid.txid,
            top: topOf(paid, [], back.top),
            turn: back.turn + 1,
            askedAt: Date.now(),
        };
        const view = { id, state, undone: payment.state === 'Undone' };
        // A node that is catching up does not know what has become of the payment back.
        const wanted = paid.node?.synced === true ? refundNotes(view, answered, paid) : [];
        const notes = await this.writeOfRefund(ctx, payment.order.id, back, wanted);
        refund.metadata = { ...refund.metadata, svc: { ...answered, notes } };
        await this.connection.getRepository(ctx, Refund).save(refund, { reload: false });
        if (state === 'Pending' && settled)
            await this.orderService.transitionRefundToState(ctx, id, 'Settled');
    }
}

function newAttempt(
    { channelId, languageCode }: RequestContext,
    node: string,
    origin: string,
    { order }: PaymentRequest,
    unit: string,
    quote: Quote,
    watch: string,
    payUntil: number,
): Attempt {
    const now = Date.now();
    return {
        node,
        channelId,
        languageCode,
        origin,
        order,
        unit,
        quote,
        watch,
        payUntil,
        seen: 'unpaid',
        settled: false,
        confirmations: 0,
        turn: 0,
        begunAt: now,
        askedAt: now,
        notes: [],
    };
}

function isHttpUrl(text: string): boolean {
    return /^https?:\/\//.test(text) && URL.canParse(text);
}

/** A request to this URL, of which Vendure makes links: there is none while an event or a task goes on with an order. */
function requestTo(origin: string): Request {
    const { host, protocol } = new URL(origin);
    const made = Object.create(request) as Request;
    made.headers = { host, 'x-forwarded-proto': protocol.replace(':', '') };
    return made;
}

/** The settings of a payment method, as Vendure stores them. */
function settingsOf(args: ConfigArg[]): SvcPaySettings {
    const given = new Map(args.map(({ name, value }) => [name, value]));
    const text = (name: keyof SvcPaySettings) => (given.get(name) ?? '').trim();
    const number = (name: keyof SvcPaySettings) => Number(text(name));
    return {
        node: text('node'),
        recipient: text('recipient'),
        confirmations: number('confirmations'),
        minutesToPay: number('minutesToPay'),
        currency: text('currency'),
        rate: text('rate'),
        rateUrl: text('rateUrl'),
        ratePath: text('ratePath'),
        rateMaxAge: number('rateMaxAge'),
    };
}

/**
 * Throws if an answer cannot be about the chain up to this height: there may be several nodes behind a URL, and what one
 * has told another may not know yet.
 */
async function mustReach({ node, tip }: NodePayment, least: number | undefined): Promise<void> {
    const { NodeUnreachable } = await svcPay();
    if (least !== undefined && (node?.synced !== true || Number(tip?.height ?? -1) < least))
        throw new NodeUnreachable(`the node that answers has not block ${least}, which its feed had`);
}

export function sentenceOf(error: unknown): string {
    return error instanceof Error ? error.message : String(error);
}
