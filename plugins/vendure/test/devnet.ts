import { ChildProcess, spawn } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { svcPay } from '../src/svc-pay';

const SECONDS = 120;

/** Asks again and again, because what is waited for comes from another process. */
export async function until<T>(what: string, ask: () => Promise<T | null | undefined | false>): Promise<T> {
    const end = Date.now() + SECONDS * 1000;
    for (;;) {
        const found = await ask();
        if (found) return found;
        if (Date.now() > end) throw new Error(`${what}: not within ${SECONDS} s`);
        await sleep(50);
    }
}

/** Below the ports that the system gives to outgoing connections, one of which could take it before it is listened on. */
export async function freePort(): Promise<number> {
    for (;;) {
        const port = 20_000 + Math.floor(Math.random() * 12_000);
        const server = createServer();
        const listens = await new Promise<boolean>(done =>
            server.once('error', () => done(false)).listen(port, () => done(true)),
        );
        if (listens) {
            await new Promise(done => server.close(done));
            return port;
        }
    }
}

export async function faucetKey() {
    const { Key } = await svcPay();
    const seed = await crypto.subtle.digest('SHA-256', new TextEncoder().encode('svc devnet faucet'));
    return Key.fromSeed(new Uint8Array(seed));
}

/** A devnet of one node in a process of its own, whose clock can be set forward. */
export class Devnet {
    readonly url: string;
    private process?: ChildProcess;

    constructor(
        readonly folder: string,
        readonly port: number,
        private svc: string,
    ) {
        this.url = `http://127.0.0.1:${port}`;
    }

    async start(): Promise<void> {
        writeFileSync(join(this.folder, 'clock'), '+0\n');
        const library = readdirSync('/usr/lib')
            .map(name => `/usr/lib/${name}/faketime/libfaketime.so.1`)
            .find(existsSync);
        if (library === undefined) throw new Error('faketime is not installed (apt install faketime)');
        const environment = {
            ...process.env,
            LD_PRELOAD: library,
            FAKETIME_TIMESTAMP_FILE: join(this.folder, 'clock'),
            FAKETIME_NO_CACHE: '1',
        };
        this.process = spawn(this.svc, ['devnet', join(this.folder, 'node'), '--port', String(this.port)], {
            stdio: ['ignore', 'ignore', 'inherit'],
            env: environment,
        });
        await until('an answer of the node', () =>
            fetch(`${this.url}/rpc/status`).then(
                answer => answer.ok,
                () => false,
            ),
        );
    }

    async stop(): Promise<void> {
        const ended = new Promise(done => this.process?.once('exit', done));
        this.process?.kill('SIGTERM');
        await ended;
    }

    /** From now on it is so many seconds later for the node, whose operator says that this is right. */
    async passes(seconds: number): Promise<void> {
        writeFileSync(join(this.folder, 'clock'), `+${seconds}\n`);
        await this.operate('reload', { trustClock: true });
    }

    secret(name: 'manage-token' | 'signing-secret'): string {
        return readFileSync(join(this.folder, 'node', name), 'utf8').trim();
    }

    mine(blocks: number): Promise<unknown> {
        return this.operate('mine', { blocks });
    }

    reorganise(depth: number): Promise<unknown> {
        return this.operate('reorganise', { depth });
    }

    faucet(recipient: string, amount: string): Promise<unknown> {
        return this.operate('faucet', { recipient, amount });
    }

    private operate(what: string, body: object): Promise<unknown> {
        const socketPath = join(this.folder, 'node', 'operator.sock');
        return new Promise((resolve, reject) => {
            // A connection that is kept may be one of the node before its restart.
            const options = { socketPath, path: `/operator/${what}`, method: 'POST', agent: false };
            const asked = request(options, answer => {
                let text = '';
                answer.setEncoding('utf8').on('data', (piece: string) => (text += piece));
                answer.on('end', () => {
                    const told = JSON.parse(text) as { ok: boolean; error?: string };
                    if (told.ok) resolve(told);
                    else reject(new Error(told.error));
                });
            });
            asked.on('error', reject).end(JSON.stringify(body));
        });
    }
}
