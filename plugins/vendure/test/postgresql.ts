import { ChildProcess, spawn, spawnSync } from 'node:child_process';
import { chownSync, existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const SYSTEM = '/usr/lib/postgresql';

function program(name: string): string {
    const folders = (process.env.PATH ?? '').split(':');
    if (existsSync(SYSTEM)) folders.push(...readdirSync(SYSTEM).map(version => join(SYSTEM, version, 'bin')));
    const found = folders.map(folder => join(folder, name)).find(existsSync);
    if (found === undefined) throw new Error(`${name} is not installed (apt install postgresql)`);
    return found;
}

/** The user of PostgreSQL, which refuses to run as root. */
function identity(): { uid: number; gid: number } | undefined {
    if (process.getuid?.() !== 0) return undefined;
    const line = readFileSync('/etc/passwd', 'utf8').match(/^(?:postgres|nobody):[^:]*:(\d+):(\d+):/m);
    if (line === null) throw new Error('there is no user postgres or nobody');
    return { uid: Number(line[1]), gid: Number(line[2]) };
}

/** A server of PostgreSQL in a folder, reached by a socket in it. */
export class Postgresql {
    private process?: ChildProcess;

    constructor(private folder: string) {}

    async start() {
        const user = identity();
        mkdirSync(this.folder);
        if (user) chownSync(this.folder, user.uid, user.gid);
        const data = join(this.folder, 'data');
        const options = { cwd: this.folder, stdio: ['ignore', 'ignore', 'inherit'] as 'ignore'[], ...user };
        const made = spawnSync(
            program('initdb'),
            ['-D', data, '-U', 'vendure', '-A', 'trust', '-E', 'UTF8', '--no-sync', '--locale=C.UTF-8'],
            options,
        );
        if (made.status !== 0) throw new Error('initdb has failed');
        const settings = ['listen_addresses=', `unix_socket_directories=${this.folder}`, 'fsync=off'];
        this.process = spawn(
            program('postgres'),
            ['-D', data, ...settings.flatMap(setting => ['-c', setting])],
            { ...options, stdio: 'ignore' },
        );
        while (!existsSync(join(this.folder, '.s.PGSQL.5432'))) {
            if (this.process.exitCode !== null) throw new Error('PostgreSQL does not start');
            await sleep(20);
        }
        return {
            type: 'postgres',
            host: this.folder,
            port: 5432,
            username: 'vendure',
            password: '',
        } as const;
    }

    async stop(): Promise<void> {
        const ended = new Promise(done => this.process?.once('exit', done));
        // Whoever is still connected is disconnected.
        this.process?.kill('SIGINT');
        await ended;
    }
}
