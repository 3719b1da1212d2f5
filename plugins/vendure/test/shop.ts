import { AssetServerPlugin } from '@vendure/asset-server-plugin';
import {
    DefaultJobQueuePlugin,
    DefaultSchedulerPlugin,
    DefaultSearchPlugin,
    mergeConfig,
    PaymentProcess,
    VendureConfig,
    VendureLogger,
} from '@vendure/core';
import { EmailPlugin, FileBasedTemplateLoader, orderConfirmationHandler } from '@vendure/email-plugin';
import {
    createTestEnvironment,
    PostgresInitializer,
    registerInitializer,
    SimpleGraphQLClient,
    SqljsInitializer,
    testConfig,
} from '@vendure/testing';
import gql from 'graphql-tag';
import { ChildProcess, fork } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

import { handlerOf, offerCoins, teapotShop } from '../example/teapot-shop';
import { PublicMetadata, SvcPayNode, SvcPayPlugin, svcPayTask } from '../src';
import { until } from './devnet';

export const PRICE = 1250;

export interface ShopOrder {
    id: string;
    code: string;
    state: string;
    payments: Array<{
        id: string;
        state: string;
        transactionId: string;
        metadata: { public: PublicMetadata };
    }>;
}

export interface AdminOrder extends ShopOrder {
    history: { items: Array<{ type: string; isPublic: boolean; data: { note?: string } }> };
    payments: Array<
        ShopOrder['payments'][0] & {
            refunds: Array<{
                id: string;
                state: string;
                total: number;
                metadata: { svc?: { paymentUri: string } };
            }>;
        }
    >;
}

const TEMPLATES = join(dirname(require.resolve('@vendure/email-plugin/package.json')), 'templates');
const ORDER = 'id code state payments { id state transactionId metadata }';

/** Codes of orders whose payments another plugin lets change no more. */
export const held = new Set<string>();
const holdingProcess: PaymentProcess<never> = {
    onTransitionStart: (_from, _to, { order }) => (held.has(order.code) ? 'held' : undefined),
};

/** What the server has logged. */
export const logged: string[] = [];
const log = (message: string, context?: string, trace?: string) =>
    logged.push([message, context, trace].join(' '));
const logger: VendureLogger = { error: log, warn: log, info: log, verbose: log, debug: log };

/** E-mails, of which the plugin for them writes files. */
export interface Mail {
    recipient: string;
    subject: string;
    body: string;
}

/** What server and worker of a shop have in common. */
export interface ShopSettings {
    folder: string;
    port: number;
    nodes: { [name: string]: SvcPayNode };
    /** Without one the shop is on sql.js, which no two processes share. */
    database?: VendureConfig['dbConnectionOptions'];
}

/** The configuration of a shop with the plugins that `@vendure/create` adds but for its pages. */
export function configOf({ folder, port, nodes, database }: ShopSettings): Required<VendureConfig> {
    // It runs when a test triggers it, and not beside the tests.
    svcPayTask.configure({ schedule: '0 0 1 1 *' });
    return mergeConfig(testConfig, {
        apiOptions: { port, hostname: '127.0.0.1' },
        importExportOptions: { importAssetsDir: folder },
        logger,
        schedulerOptions: { runTasksInWorkerOnly: database !== undefined },
        paymentOptions: { process: [...(testConfig.paymentOptions.process ?? []), holdingProcess] },
        ...(database && { dbConnectionOptions: database }),
        plugins: [
            DefaultSchedulerPlugin.init({ manualTriggerCheckInterval: 100 }),
            DefaultJobQueuePlugin.init({ useDatabaseForBuffer: true }),
            DefaultSearchPlugin.init({ bufferUpdates: false, indexStockStatus: true }),
            AssetServerPlugin.init({ route: 'assets', assetUploadDir: join(folder, 'assets') }),
            EmailPlugin.init({
                devMode: true,
                outputPath: join(folder, 'mails'),
                route: 'mailbox',
                handlers: [orderConfirmationHandler],
                templateLoader: new FileBasedTemplateLoader(TEMPLATES),
            }),
            SvcPayPlugin.init({ serverUrl: `http://127.0.0.1:${port}`, nodes }),
        ],
    });
}

/** A real Vendure server with one product on sql.js, or on another database with a worker in a process of its own. */
export async function openShop(settings: ShopSettings): Promise<Shop> {
    const { folder, port, database } = settings;
    registerInitializer('sqljs', new SqljsInitializer(folder));
    registerInitializer('postgres', new PostgresInitializer());
    const config = configOf(settings);
    // The server of tests does the jobs of all queues with these names.
    if (database) config.jobQueueOptions = { ...config.jobQueueOptions, activeQueues: ['none'] };
    const { server, adminClient } = createTestEnvironment(config);
    try {
        await server.init(teapotShop(folder));
    } catch (error) {
        // Nothing can close a server that has not started, and its timers would keep the process running for ever.
        setTimeout(() => process.exit(1), 10_000).unref();
        throw error;
    }
    // The initializer has chosen the name of the database.
    const { database: name } = config.dbConnectionOptions;
    const same = { ...settings, database: { ...database, database: name } };
    const worker = database && fork(join(__dirname, 'worker.js'), [JSON.stringify(same)]);
    await adminClient.asSuperAdmin();
    return new Shop(
        folder,
        server,
        worker,
        adminClient,
        () => new SimpleGraphQLClient(config, `http://127.0.0.1:${port}/shop-api`),
    );
}

export class Shop {
    constructor(
        private folder: string,
        readonly server: Awaited<ReturnType<typeof createTestEnvironment>>['server'],
        readonly worker: ChildProcess | undefined,
        readonly admin: SimpleGraphQLClient,
        private visitor: () => SimpleGraphQLClient,
    ) {}

    async close(): Promise<void> {
        this.worker?.kill();
        await this.server.destroy();
    }

    /** The e-mails so far. */
    mails(): Mail[] {
        const folder = join(this.folder, 'mails');
        if (!existsSync(folder)) return [];
        const files = readdirSync(folder).filter(name => name.endsWith('.json'));
        const texts = files.map(name => readFileSync(join(folder, name), 'utf8'));
        // The last line of a file that is whole.
        return texts.filter(text => text.endsWith('\n}')).map(text => JSON.parse(text) as Mail);
    }

    async offer(code: string, settings: { [name: string]: string | number }): Promise<void> {
        await offerCoins(this.admin, { code, name: code }, settings);
    }

    /** Whether buyers may begin to pay with a method. */
    async enable(code: string, enabled: boolean): Promise<void> {
        await this.update(code, { enabled });
    }

    async change(code: string, settings: { [name: string]: string | number }): Promise<void> {
        await this.update(code, { handler: handlerOf(settings) });
    }

    private async update(code: string, input: object): Promise<void> {
        const { paymentMethods } = await this.admin.query<{
            paymentMethods: { items: Array<{ id: string; code: string }> };
        }>(gql`
            {
                paymentMethods {
                    items {
                        id
                        code
                    }
                }
            }
        `);
        const id = paymentMethods.items.find(method => method.code === code)?.id;
        await this.admin.query(
            gql`
                mutation ($input: UpdatePaymentMethodInput!) {
                    updatePaymentMethod(input: $input) {
                        id
                    }
                }
            `,
            { input: { id, ...input } },
        );
    }

    /** A channel that sells the same; answers with its token. */
    async openChannel(code: string): Promise<string> {
        const { made } = await this.admin.query<{ made: { id: string; token: string } }>(gql`
            mutation {
                made: createChannel(input: {
                    code: "${code}", token: "${code}", defaultLanguageCode: en, availableLanguageCodes: [en, de]
                    pricesIncludeTax: true, defaultCurrencyCode: USD
                    defaultTaxZoneId: "T_1", defaultShippingZoneId: "T_1"
                }) { ... on Channel { id token } ... on ErrorResult { message } }
            }
        `);
        // One mutation in a request, because a request has one transaction.
        for (const [kinds, ids] of [
            ['Products', 'productIds'],
            ['ShippingMethods', 'shippingMethodIds'],
            ['PaymentMethods', 'paymentMethodIds'],
            ['StockLocations', 'stockLocationIds'],
        ])
            await this.admin.query(gql`
                mutation { assign${kinds}ToChannel(input: { ${ids}: ["T_1"], channelId: "${made.id}" }) { id } }
            `);
        return made.token;
    }

    /** Lets Vendure's scheduler run the task of the plugin; answers with its result. */
    async check(): Promise<{ asked: number; failed: number }> {
        interface Task {
            id: string;
            isRunning: boolean;
            lastExecutedAt: string | null;
            lastResult: { asked: number; failed: number };
        }
        const task = async () => {
            const { scheduledTasks } = await this.admin.query<{ scheduledTasks: Task[] }>(gql`
                {
                    scheduledTasks {
                        id
                        isRunning
                        lastExecutedAt
                        lastResult
                    }
                }
            `);
            return scheduledTasks.find(each => each.id === 'svc-pay-check');
        };
        const before = (await task())?.lastExecutedAt ?? null;
        await this.admin.query(gql`
            mutation {
                runScheduledTask(id: "svc-pay-check") {
                    success
                }
            }
        `);
        const after = await until('the scheduled task', async () => {
            const now = await task();
            return now !== undefined && !now.isRunning && now.lastExecutedAt !== before && now;
        });
        return after.lastResult;
    }

    /** A buyer with a teapot in the cart, who is about to pay. */
    async buyer(channel?: string): Promise<Buyer> {
        const client = this.visitor();
        if (channel !== undefined) client.setChannelToken(channel);
        const { added } = await client.query<{ added: { message?: string } }>(gql`
            mutation {
                added: addItemToOrder(productVariantId: "T_1", quantity: 1) {
                    ... on ErrorResult {
                        message
                    }
                }
            }
        `);
        if (added.message !== undefined) throw new Error(added.message);
        await client.query(gql`
            mutation {
                setCustomerForOrder(
                    input: { firstName: "A", lastName: "B", emailAddress: "a${Math.random()}@shop.example" }
                ) {
                    __typename
                }
                setOrderShippingAddress(input: { streetLine1: "1", countryCode: "DE" }) {
                    __typename
                }
            }
        `);
        const { eligibleShippingMethods } = await client.query<{
            eligibleShippingMethods: Array<{ id: string }>;
        }>(gql`
            {
                eligibleShippingMethods {
                    id
                }
            }
        `);
        await client.query(gql`
            mutation {
                setOrderShippingMethod(shippingMethodId: "${eligibleShippingMethods[0]?.id}") { ... on ErrorResult { message } }
            }
        `);
        const buyer = new Buyer(client);
        await buyer.go('ArrangingPayment');
        return buyer;
    }

    async order(id: string): Promise<AdminOrder> {
        const { order } = await this.admin.query<{ order: AdminOrder }>(gql`
            {
                order(id: "${id}") {
                    id code state
                    payments { id state transactionId metadata refunds { id state total metadata } }
                    history(options: { take: 100 }) { items { type isPublic data } }
                }
            }
        `);
        return order;
    }

    /** The notes for the staff; none of them may be shown to a buyer. */
    async notes(id: string): Promise<string[]> {
        const { history } = await this.order(id);
        if (history.items.some(item => item.type === 'ORDER_NOTE'))
            throw new Error('Vendure shows what is for the staff as a note that the buyer has written');
        const notes = history.items.filter(item => item.type === 'SVC_PAY_NOTE');
        if (notes.some(note => note.isPublic)) throw new Error('a note for the staff is public');
        return notes.map(note => note.data.note ?? '');
    }

    async refund(
        paymentId: string,
        amount: number,
    ): Promise<{ __typename: string; id: string; state: string }> {
        const { refundOrder } = await this.admin.query<{
            refundOrder: { __typename: string; id: string; state: string };
        }>(gql`
            mutation {
                refundOrder(input: {
                    lines: [], shipping: 0, adjustment: 0, amount: ${amount}, paymentId: "${paymentId}", reason: "broken"
                }) {
                    __typename
                    ... on Refund { id state }
                    ... on ErrorResult { errorCode message }
                }
            }
        `);
        return refundOrder;
    }

    /** What an administrator does to an order, a payment or a refund. */
    async byHand(mutation: string): Promise<void> {
        const { made } = await this.admin.query<{ made: { message?: string } }>(
            gql`mutation { made: ${mutation} { ... on ErrorResult { message } } }`,
        );
        if (made.message !== undefined) throw new Error(made.message);
    }

    /** Fulfils the order, and answers with the state of the fulfilment, or with why it is refused. */
    async ship(id: string): Promise<string> {
        const { order } = await this.admin.query<{ order: { lines: Array<{ id: string }> } }>(
            gql`{ order(id: "${id}") { lines { id } } }`,
        );
        const handler = { code: 'manual-fulfillment', arguments: [{ name: 'method', value: 'post' }] };
        const { addFulfillmentToOrder: made } = await this.admin.query<{
            addFulfillmentToOrder: { id: string };
        }>(
            gql`
                mutation ($input: FulfillOrderInput!) {
                    addFulfillmentToOrder(input: $input) {
                        ... on Fulfillment {
                            id
                        }
                        ... on ErrorResult {
                            message
                        }
                    }
                }
            `,
            { input: { lines: order.lines.map(line => ({ orderLineId: line.id, quantity: 1 })), handler } },
        );
        return this.shipFulfillment(made.id);
    }

    async shipFulfillment(id: string): Promise<string> {
        const { moved } = await this.admin.query<{ moved: { state?: string; transitionError?: string } }>(gql`
            mutation {
                moved: transitionFulfillmentToState(id: "${id}", state: "Shipped") {
                    ... on Fulfillment { id state }
                    ... on FulfillmentStateTransitionError { transitionError }
                }
            }
        `);
        return moved.state ?? moved.transitionError ?? '';
    }
}

export class Buyer {
    constructor(private client: SimpleGraphQLClient) {}

    async go(state: string): Promise<void> {
        const { moved } = await this.client.query<{ moved: { transitionError?: string } }>(
            gql`mutation {
                moved: transitionOrderToState(state: "${state}") {
                    __typename
                    ... on OrderStateTransitionError { transitionError }
                }
            }`,
        );
        if (moved.transitionError !== undefined) throw new Error(moved.transitionError);
    }

    /** Begins an attempt; the order, or the sentence of a refusal. */
    async begin(method = 'coins'): Promise<ShopOrder & { message?: string; paymentErrorMessage?: string }> {
        const { addPaymentToOrder } = await this.client.query<{
            addPaymentToOrder: ShopOrder & { message?: string; paymentErrorMessage?: string };
        }>(gql`
            mutation {
                addPaymentToOrder(input: { method: "${method}", metadata: {} }) {
                    ... on Order { ${ORDER} }
                    ... on ErrorResult { message }
                    ... on PaymentFailedError { paymentErrorMessage }
                }
            }
        `);
        return addPaymentToOrder;
    }

    /** What the storefront sees of an order: it is the active one until the node has seen the payment. */
    async look(code: string): Promise<ShopOrder> {
        const { activeOrder } = await this.client.query<{ activeOrder: ShopOrder | null }>(
            gql`{ activeOrder { ${ORDER} } }`,
        );
        if (activeOrder !== null) return activeOrder;
        const { orderByCode } = await this.client.query<{ orderByCode: ShopOrder }>(
            gql`{ orderByCode(code: "${code}") { ${ORDER} } }`,
        );
        return orderByCode;
    }
}
