/**
 * A Vendure shop with one product, for trying the plugin out: `npm start`, beside `make devnet`. It is a
 * shop of tests, whose data are in memory; a real one has its own configuration, and needs of this file only
 * what it gives to `SvcPayPlugin.init`.
 */
import { DefaultSchedulerPlugin, mergeConfig } from '@vendure/core';
import { createTestEnvironment, registerInitializer, SqljsInitializer, testConfig } from '@vendure/testing';
import { static as files } from 'express';
import { mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { SvcPayPlugin } from '../src';
import { offerCoins, teapotShop } from './teapot-shop';

const { NODE_URL = 'http://127.0.0.1:18645', DEVNET = 'devnet', RECIPIENT, PORT = '3000' } = process.env;

async function start(): Promise<void> {
    if (RECIPIENT === undefined) throw new Error('set RECIPIENT to the address of your wallet');
    const secret = (name: string) => readFileSync(join(DEVNET, name), 'utf8').trim();
    const folder = mkdtempSync(join(tmpdir(), 'vendure-'));
    registerInitializer('sqljs', new SqljsInitializer(folder));
    const config = mergeConfig(testConfig, {
        apiOptions: {
            port: Number(PORT),
        },
        importExportOptions: { importAssetsDir: folder },
        // A real shop has a worker for this.
        schedulerOptions: { runTasksInWorkerOnly: false },
        authOptions: {
            // The page sends the token of its session, and curl a cookie.
            tokenMethod: ['bearer', 'cookie'],
            superadminCredentials: { identifier: 'superadmin', password: 'superadmin' },
        },
        plugins: [
            DefaultSchedulerPlugin.init(),
            SvcPayPlugin.init({
                serverUrl: `http://127.0.0.1:${PORT}`,
                nodes: {
                    main: {
                        url: NODE_URL,
                        token: secret('manage-token'),
                        signingSecret: secret('signing-secret'),
                        publicUrl: NODE_URL,
                    },
                },
            }),
        ],
    });
    const storefront = files(join(__dirname, '../../example'));
    config.apiOptions.middleware = [{ route: '/', handler: storefront, beforeListen: true }];
    const { server, adminClient } = createTestEnvironment(config);
    await server.init(teapotShop(folder));
    await adminClient.asSuperAdmin();
    await offerCoins(
        adminClient,
        { code: 'coins', name: 'Coins' },
        {
            node: 'main',
            recipient: RECIPIENT,
            confirmations: 3,
            minutesToPay: 30,
            currency: 'USD',
            rate: '0.50',
            rateUrl: '',
            ratePath: '',
            rateMaxAge: 60,
        },
    );
    console.log(
        `The shop is open: http://127.0.0.1:${PORT}/ (Admin API: /admin-api, superadmin, superadmin)`,
    );
}

start().catch((error: unknown) => {
    console.error(error instanceof Error ? error.message : error);
    process.exitCode = 1;
});
